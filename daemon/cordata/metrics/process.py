"""The counters of this process, as the parts of it get them: each part gets one that it calls."""

from __future__ import annotations

import os
import resource
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from cordata import clock
from cordata.log import logger
from cordata.metrics import series as names
from cordata.metrics.file import Counter, Gauge, Histogram, MetricsFile, Series
from cordata.metrics.series import SHORT

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
    """Attempts at something: how they ended, and how long they took."""

    __slots__ = ("_counters", "_seconds")

    def __init__(self, counters: dict[str, Counter], seconds: Histogram) -> None:
        self._counters, self._seconds = counters, seconds

    def count(self, outcome: str, seconds: float) -> None:
        """Count one."""
        self._counters[outcome].add()
        self._seconds.observe(seconds)


class CallMetrics:
    """The calls of one command."""

    __slots__ = ("_counters", "_run", "_wait")

    def __init__(self, counters: dict[str, Counter], wait: Histogram, run: Histogram) -> None:
        self._counters, self._wait, self._run = counters, wait, run

    def ran(self, outcome: str, wait_s: float, run_s: float) -> None:
        """Count a call that a child has answered."""
        self._counters[outcome].add()
        self._wait.observe(wait_s)
        self._run.observe(run_s)

    def failed(self) -> None:
        """Count a call that no child has answered."""
        self._counters["error"].add()


class ProcessMetrics:
    """All counters of this process. Make it with `open_metrics`."""

    def __init__(self, file: MetricsFile) -> None:
        """`file`: with `process_series()` among its series."""
        self._file = file
        self._gauges: list[tuple[Gauge, Callable[[], float]]] = []
        cpu = names.CPU_SECONDS.series()
        (cpu_before,) = file.values[file.offset(cpu) : file.offset(cpu) + 1]
        self.watch(cpu, lambda: cpu_before + time.process_time())
        memory = (names.VIRTUAL_BYTES, names.RESIDENT_BYTES)
        self._memory = [file.gauge(family.series()) for family in memory]
        self.watch(names.OPEN_FDS.series(), lambda: len(os.listdir("/proc/self/fd")))
        self.watch(names.MAX_FDS.series(), _max_fds)
        self.tick()

    def end(self) -> None:
        """Say that this process ends in order. Its counters stay."""
        self.tick()
        self._file.end()

    def tick(self) -> None:
        """Write the gauges, and keep a sample when it is due. Call it every 2 s. Raises nothing."""
        for gauge, value in self._gauges:
            with suppress(OSError):  # no file descriptor is free
                gauge.set(value())
        with suppress(OSError):
            pages = Path("/proc/self/statm").read_text().split()  # proc_pid_statm(5)
            for gauge, count in zip(self._memory, pages, strict=False):
                gauge.set(int(count) * _PAGE_BYTES)
        self._file.sample_if_due()

    def watch(self, series: Series, value: Callable[[], float]) -> None:
        """Write `value()` as this gauge at each tick."""
        self._gauges.append((self._file.gauge(series), value))

    def http(self) -> HttpMetrics:
        """For the HTTP server."""
        return HttpMetrics(self._file)

    def commits(self) -> Callable[[float], None]:
        """For the store: a function that takes the seconds of a commit."""
        return self._file.histogram(names.COMMIT_SECONDS.series()).observe

    def handler(self, group: str) -> Outcomes:
        """For the handler of a consumer group."""
        family = names.HANDLER_ATTEMPTS
        counters = self._counters(
            {outcome: family.series(group=group, outcome=outcome) for outcome in names.ATTEMPTS}
        )
        return Outcomes(counters, self._file.histogram(names.HANDLER_SECONDS.series(group=group)))

    def calls(self, commands: Iterable[str]) -> dict[str, CallMetrics]:
        """For the client of the pool, by command."""
        return {command: self._call(command) for command in commands}

    def mail(self) -> Outcomes:
        """For the service that sends mail."""
        family = names.MAIL_ATTEMPTS
        counters = self._counters({one: family.series(outcome=one) for one in names.MAILS})
        return Outcomes(counters, self._file.histogram(names.MAIL_SECONDS.series()))

    def job(self, job: str) -> Callable[[str, float], None]:
        """For a job: a function that takes outcome and seconds of a run."""
        runs = Outcomes(
            self._counters(
                {one: names.JOB_RUNS.series(job_name=job, outcome=one) for one in names.RUNS}
            ),
            self._file.histogram(names.JOB_SECONDS.series(job_name=job)),
        )
        ended = {
            one: self._file.gauge(names.JOB_ENDED.series(job_name=job, outcome=one))
            for one in names.RUNS
        }

        def count(outcome: str, seconds: float) -> None:
            runs.count(outcome, seconds)
            ended[outcome].set(clock.now().timestamp())

        return count

    def _call(self, command: str) -> CallMetrics:
        family = names.POOL_CALLS
        counters = self._counters(
            {one: family.series(command=command, outcome=one) for one in names.CALLS}
        )
        wait = self._file.histogram(names.POOL_WAIT_SECONDS.series(command=command))
        run = self._file.histogram(names.POOL_RUN_SECONDS.series(command=command))
        return CallMetrics(counters, wait, run)

    def _counters(self, series: dict[str, Series]) -> dict[str, Counter]:
        return {key: self._file.counter(one) for key, one in series.items()}


def _max_fds() -> float:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return float("inf") if limit == resource.RLIM_INFINITY else limit


def open_metrics(directory: Path, unit: str, series: Sequence[Series]) -> ProcessMetrics | None:
    """The counters of this process; None, and a line in the log, if there can be no file."""
    try:
        file = MetricsFile(directory, unit, [*names.process_series(), *series])
        return ProcessMetrics(file)
    except OSError as error:
        log.warning("this process is not counted in metrics and status: %s", error)
        return None
