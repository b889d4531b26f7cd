"""The counters of this process, as the parts of it get them: each part gets one that it calls."""

from __future__ import annotations

import os
import resource
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from cordata import clock
from cordata.log import logger
from cordata.metrics import series as names
from cordata.metrics.file import MetricsFile, Series
from cordata.metrics.series import SHORT, Operation

log = logger("cordata.metrics")

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class HttpMetrics:
    """Requests by method and class of the status, and their duration."""

    __slots__ = ("_buckets_at", "_counts", "_other", "_sum_at", "_values")

    def __init__(self, file: MetricsFile) -> None:
        self._values = file.values
        self._counts = {
            (method, int(code[0])): file.offset(names.REQUESTS.series(method=method, code=code))
            for method in names.METHODS
            for code in names.CODES
        }
        self._other = {code: at for (method, code), at in self._counts.items() if method == "other"}
        self._buckets_at = file.offset(names.REQUEST_SECONDS.series())
        self._sum_at = self._buckets_at + len(names.SHORT) + 1

    def count(self, method: str, status: int, seconds: float) -> None:
        """Count a request. Everything is in this function, since calls cost more than it does."""
        values = self._values
        code = status // 100
        at = self._counts.get((method, code))
        if at is None:
            at = self._other[min(max(code, 2), 5)]
        values[at] += 1.0
        values[self._buckets_at + bisect_left(SHORT, seconds)] += 1.0
        values[self._sum_at] += seconds


class Outcomes:
    """The counters of one operation: how it ended, and how long it took."""

    __slots__ = ("_counts", "_observe", "_observe_run", "_values")

    def __init__(self, file: MetricsFile, operation: Operation, labels: Mapping[str, str]) -> None:
        self._values = file.values
        self._counts = {
            one: file.offset(operation.counts.series(**labels, outcome=one))
            for one in operation.outcomes
        }
        times = [file.histogram(family.series(**labels)).observe for family in operation.times]
        self._observe, self._observe_run = times[0], times[-1]

    def count(self, outcome: str, seconds: float | None = None, run_s: float | None = None) -> None:
        """Count one. `seconds`: how long it took; of a call, how long it waited, and `run_s` how
        long it ran. None: it was not timed.
        """
        self._values[self._counts[outcome]] += 1.0
        if seconds is not None:
            self._observe(seconds)
        if run_s is not None:
            self._observe_run(run_s)


class ProcessMetrics:
    """All counters of this process. Make it with `open_metrics`."""

    def __init__(self, file: MetricsFile) -> None:
        """`file`: with `process_series()` among its series."""
        self._file = file
        self._gauges: list[tuple[int, Callable[[], float]]] = []
        cpu = names.CPU_SECONDS.series()
        cpu_before = file.values[file.offset(cpu)]
        self.watch(cpu, lambda: cpu_before + time.process_time())
        memory = (names.VIRTUAL_BYTES, names.RESIDENT_BYTES)
        self._memory = [file.offset(family.series()) for family in memory]
        self.watch(names.OPEN_FDS.series(), lambda: len(os.listdir("/proc/self/fd")))
        self.watch(names.MAX_FDS.series(), _max_fds)
        self.tick()

    def end(self) -> None:
        """Say that this process ends in order. Its counters stay."""
        self.tick()
        self._file.end()

    def tick(self) -> None:
        """Write the gauges, and keep a sample when it is due. Call it every 2 s. Raises nothing."""
        for at, value in self._gauges:
            self._write(at, value)
        values = self._file.values
        with suppress(OSError):
            pages = Path("/proc/self/statm").read_text().split()  # proc_pid_statm(5)
            for at, count in zip(self._memory, pages, strict=False):
                values[at] = int(count) * _PAGE_BYTES
        self._file.sample_if_due()

    def watch(self, series: Series, value: Callable[[], float]) -> None:
        """Write `value()` as this gauge now and at each tick: until now it has the value of the
        process before, or 0.
        """
        at = self._file.offset(series)
        self._write(at, value)
        self._gauges.append((at, value))

    def _write(self, at: int, value: Callable[[], float]) -> None:
        with suppress(OSError):  # no file descriptor is free
            self._file.values[at] = value()

    def http(self) -> HttpMetrics:
        """For the HTTP server."""
        return HttpMetrics(self._file)

    def commits(self) -> Callable[[float], None]:
        """For the store: a function that takes the seconds of a commit."""
        return self._file.histogram(names.COMMIT_SECONDS.series()).observe

    def outcomes(self, operation: Operation, **labels: str) -> Outcomes:
        """For the part of the process that does this."""
        return Outcomes(self._file, operation, labels)

    def job(self, job: str) -> Callable[[str, float], None]:
        """For a job: a function that takes outcome and seconds of a run."""
        runs = self.outcomes(names.JOBS, job_name=job)
        ended = {
            one: self._file.offset(names.JOB_ENDED.series(job_name=job, outcome=one))
            for one in names.JOBS.outcomes
        }

        def count(outcome: str, seconds: float) -> None:
            runs.count(outcome, seconds)
            self._file.values[ended[outcome]] = clock.now().timestamp()

        return count


def outcomes_by(
    label: str, values: Iterable[str], operation: Operation, metrics: ProcessMetrics | None
) -> dict[str, Outcomes]:
    """The counters of an operation for each value of its label; none if nothing is counted."""
    if metrics is None:
        return {}
    return {value: metrics.outcomes(operation, **{label: value}) for value in values}


def _max_fds() -> float:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return float("inf") if limit == resource.RLIM_INFINITY else limit


def open_metrics(directory: Path, unit: str, series: Sequence[Series]) -> ProcessMetrics | None:
    """The counters of this process; None, and a line in the log, if there can be no file."""
    try:
        file = MetricsFile(directory, unit, [*names.process_series(), *series])
        if file.in_memory:
            log.warning("%s is full: metrics and status show this process later", directory)
        return ProcessMetrics(file)
    except OSError as error:
        log.warning("this process is not counted in metrics and status: %s", error)
        return None
