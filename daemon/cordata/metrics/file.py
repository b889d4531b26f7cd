"""The counters of one process, in a file that is mapped into its memory.

    header     JSON: the process, and what each value is; it never changes
    values     one float for each counter and gauge, several for each histogram
    samples    older copies of the values, for rates: (time, values), three times

Counting is one addition in memory. Other processes read the file, also after its process has been
killed. When the unit starts again, the new process makes a new file with the counters of the old
one, so that they never go backwards until the host boots.

A process that starts on a full disk counts in memory of its own. At each sample it copies that
memory into its file, so other processes see it as soon as there is space, up to 5 s late.
"""

from __future__ import annotations

import errno
import fcntl
import json
import mmap
import os
import struct
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from msgspec import Struct

from cordata import clock
from cordata.pid import is_gone, start_of

Kind = Literal["counter", "gauge", "histogram"]

#: Time between two samples: the rates are those of the last 10 to 15 s.
SAMPLE_S = 5.0
#: Files whose process ended longer ago are removed: longer than a week, for weekly jobs.
KEPT_S = 8 * 86_400.0
_SAMPLES = 3
_SUFFIX = ".metrics"
#: Format of the file, length of the header, and whether its process has ended in order.
_HEAD = struct.Struct("=8sQQ")
_ENDED_AT = 16
_MAGIC = b"cordata1"
_FLOAT_BYTES = 8
#: A file cannot be made now, but can be as soon as somebody makes space.
_FULL = {errno.ENOSPC, errno.EDQUOT}


class Series(Struct, frozen=True):
    """One counter, gauge or histogram of a process."""

    name: str
    kind: Kind
    labels: tuple[tuple[str, str], ...] = ()
    #: Upper bounds of a histogram's buckets, without the infinite one.
    bounds: tuple[float, ...] = ()

    @property
    def size(self) -> int:
        """Number of its values: of a histogram the count in each bucket, then the sum."""
        return len(self.bounds) + 2 if self.kind == "histogram" else 1


class Histogram:
    """How often something took how long."""

    __slots__ = ("_at", "_bounds", "_sum_at", "_values")

    def __init__(self, values: memoryview[float], at: int, bounds: tuple[float, ...]) -> None:
        self._values, self._at, self._bounds = values, at, bounds
        self._sum_at = at + len(bounds) + 1

    def observe(self, seconds: float) -> None:
        """Count one that took so long."""
        values = self._values
        values[self._at + bisect_left(self._bounds, seconds)] += 1.0
        values[self._sum_at] += seconds


class FileInUse(OSError):
    """Another process of the same unit lives."""


class MetricsFile:
    """The file of this process. Only one thread may count."""

    def __init__(self, directory: Path, unit: str, series: Sequence[Series]) -> None:
        """Make the file of `unit` ("worker@0"), with the counters of the process before.

        On a full disk it is made later. Raises: FileInUse; OSError.
        """
        for one in (directory.parent, directory):  # `mode` is that of the last part only
            one.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = directory / f"{unit}{_SUFFIX}"
        self._new = directory / f".{unit}.new"
        #: The file, mapped; None: there was no space for it.
        self._file: int | None = None
        self._offsets = dict(_offsets(series))
        with _locked(directory):  # another process of the unit may start now
            remove_old(directory)
            before = self._predecessor()
            #: This process, and the one whose counters it goes on with; 0: none.
            self._pids = {os.getpid(), before.pid if before is not None else 0}
            self._make(unit, series, before)

    @property
    def in_memory(self) -> bool:
        """Whether the disk was full, so that the file has copies of what is counted."""
        return self._file is None

    def _predecessor(self) -> Reading | None:
        """The file that is there. Raises: FileInUse if its process lives."""
        before = read(self._path)
        if before is not None and before.alive and before.pid != os.getpid():
            raise FileInUse(f"process {before.pid} counts in {self._path}")
        return before

    def _make(self, unit: str, series: Sequence[Series], before: Reading | None) -> None:
        head = _head(unit, series)
        count = sum(one.size for one in series)
        size = len(head) + _length(count) * _FLOAT_BYTES
        try:
            self._map = self._map_file(size)
        except OSError as error:
            if error.errno not in _FULL:
                raise
            self._map = mmap.mmap(-1, size)
        try:
            self._map[: len(head)] = head
            floats = memoryview(self._map)[len(head) :].cast("d")
            #: All values; an index is that of `Series` in the order of the header.
            self.values = floats[:count]
            self._samples = [
                floats[count + number * (1 + count) :][: 1 + count] for number in range(_SAMPLES)
            ]
            if before is not None:
                self._adopt(before)
            self._number = 0
            self._sampled_at = 0.0
            self._sample()
            if self._file is not None:
                self._new.replace(self._path)
        except BaseException:
            if self._file is not None:
                os.close(self._file)
                self._new.unlink(missing_ok=True)
            raise

    def _map_file(self, size: int) -> mmap.mmap:
        """The new file, still with its temporary name, mapped. Raises: OSError; then it is gone."""
        file = os.open(self._new, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            # Not ftruncate: on a full file system the first write to a hole is a SIGBUS.
            os.posix_fallocate(file, 0, size)
            mapped = mmap.mmap(file, size)
        except BaseException:
            os.close(file)
            self._new.unlink(missing_ok=True)
            raise
        self._file = file
        return mapped

    def _adopt(self, before: Reading) -> None:
        for series, at in self._offsets.items():
            if series in before.values:
                self.values[at : at + series.size] = memoryview(
                    struct.pack(f"={series.size}d", *before.values[series])
                ).cast("d")

    def histogram(self, series: Series) -> Histogram:
        """The histogram of a series of this file."""
        return Histogram(self.values, self._offsets[series], series.bounds)

    def offset(self, series: Series) -> int:
        """Where the values of a series begin in `values`; of a counter or gauge, its only one."""
        return self._offsets[series]

    def end(self) -> None:
        """Write that this process ends in order."""
        self._map[_ENDED_AT] = 1
        if self._file is None:
            self._copy()

    def sample_if_due(self) -> None:
        """Keep a copy of the values every SAMPLE_S. Call it every few seconds."""
        if clock.monotonic() - self._sampled_at >= SAMPLE_S:
            self.sample()

    def sample(self) -> None:
        """Keep a copy of the values, instead of the oldest one."""
        self._sample()
        if self._file is None:
            self._copy()

    def _sample(self) -> None:
        sample = self._samples[self._number]
        sample[0] = 0.0  # not valid while it changes
        sample[1:] = self.values
        sample[0] = self._sampled_at = clock.monotonic()
        self._number = (self._number + 1) % _SAMPLES
        if self._file is not None:
            with suppress(OSError):
                os.utime(self._file)  # writing to mapped memory does not

    def _copy(self) -> None:
        """Write what is counted in memory into the file, if there is space by now."""
        try:
            with _locked(self._path.parent, wait=False):
                before = self._predecessor()
                if before is not None and before.pid not in self._pids:
                    return  # a job that was started again has counted there meanwhile
                try:
                    self._new.touch(mode=0o600)
                    self._new.write_bytes(self._map[:])
                    self._new.replace(self._path)
                finally:
                    self._new.unlink(missing_ok=True)
        except OSError:
            return


class Reading(Struct, frozen=True, kw_only=True):
    """The file of one process, as it was read."""

    unit: str
    pid: int
    #: Whether the process lives.
    alive: bool
    #: Whether it has ended in order, or is about to: nobody misses it.
    ended: bool
    #: When it started, in seconds since the epoch.
    started_at: float
    values: Mapping[Series, tuple[float, ...]]
    #: The oldest sample, and how long ago it was taken; None: there is none.
    before: Mapping[Series, tuple[float, ...]] | None
    span_s: float = 0.0


def read(path: Path) -> Reading | None:
    """Read a file; None: there is none, or it is not one of this format."""
    try:
        data = path.read_bytes()
        magic, length, ended = _HEAD.unpack_from(data)
        if magic != _MAGIC:
            return None
        begin = _HEAD.size + length
        header = json.loads(data[_HEAD.size : begin])
        series = [
            Series(name, kind, tuple((key, value) for key, value in labels), tuple(bounds))
            for name, kind, labels, bounds in header["series"]
        ]
        floats = memoryview(data)[begin:].cast("d")
        pid, start = int(header["pid"]), int(header["start"])
        count = sum(one.size for one in series)
        if len(floats) != _length(count):
            return None
        sampled_at, at = _oldest_sample(floats, count)
        return Reading(
            unit=header["unit"],
            pid=pid,
            alive=not is_gone(pid, start),
            ended=bool(ended),
            started_at=header["started_at"],
            values=_values(series, floats[:count]),
            before=None if at is None else _values(series, floats[at : at + count]),
            span_s=clock.monotonic() - sampled_at,
        )
    except (OSError, ValueError, KeyError, TypeError, struct.error):
        return None


def read_all(directory: Path) -> list[Reading]:
    """The files of all processes of this host, those that have ended, too."""
    paths = sorted(directory.glob(f"*{_SUFFIX}"), key=lambda path: (len(path.name), path.name))
    return [reading for path in paths if (reading := read(path)) is not None]


def remove_old(directory: Path) -> None:
    """Remove the files of units that have ended for KEPT_S: workers or jobs that are gone.

    Each process does so when it starts, and each scrape.
    """
    until = clock.now().timestamp() - KEPT_S
    for path in directory.glob(f"*{_SUFFIX}"):
        with suppress(OSError):
            if path.stat().st_mtime < until and ((found := read(path)) is None or not found.alive):
                path.unlink()


@contextmanager
def _locked(directory: Path, *, wait: bool = True) -> Iterator[None]:
    """One process at a time makes a file there. Raises: BlockingIOError if it does not wait."""
    lock = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(lock)


def _head(unit: str, series: Sequence[Series]) -> bytes:
    """What the file of this process begins with."""
    header = json.dumps(
        {
            "unit": unit,
            "pid": os.getpid(),
            "start": start_of(),
            "started_at": _started_at(),
            "series": [[one.name, one.kind, one.labels, one.bounds] for one in series],
        }
    ).encode()
    header += b" " * (-len(header) % _FLOAT_BYTES)
    return _HEAD.pack(_MAGIC, len(header), 0) + header


def _length(count: int) -> int:
    """Numbers in the file of `count` values: these, and the samples, each with its time."""
    return count + _SAMPLES * (1 + count)


def _offsets(series: Sequence[Series]) -> Iterator[tuple[Series, int]]:
    at = 0
    for one in series:
        yield one, at
        at += one.size


def _values(series: Sequence[Series], floats: memoryview[float]) -> dict[Series, tuple[float, ...]]:
    return {one: tuple(floats[at : at + one.size]) for one, at in _offsets(series)}


def _oldest_sample(floats: memoryview[float], count: int) -> tuple[float, int | None]:
    """Time of the oldest valid sample, and where its values begin."""
    now = clock.monotonic()
    found = [
        (floats[at], at + 1)
        for at in range(count, len(floats), 1 + count)
        if 0.0 < floats[at] <= now
    ]
    return min(found, default=(now, None))


def _started_at() -> float:
    """When this process started, in seconds since the epoch. Of other processes it is not known in
    a hardened unit, where /proc/stat, with the time of the boot, cannot be read.
    """
    age_s = clock.since_boot() - start_of() / os.sysconf("SC_CLK_TCK")
    return clock.now().timestamp() - age_s
