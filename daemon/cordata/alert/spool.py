"""A file for alerts of processes that end before the store has them, or while it is away."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec

from cordata.core.alert import AlertGroup

T = TypeVar("T")

_FILE = "alerts.waiting"
#: Limit of the file: some thousand alerts. Later ones are dropped, as the first show the problem.
_MAX_BYTES = 1 << 20

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(AlertGroup).decode


class Spool:
    """Lines of JSON in the first directory that can be written; processes of a host share it."""

    def __init__(self, directories: Sequence[Path]) -> None:
        self._paths = [directory / _FILE for directory in directories]
        #: Size of what was taken, of a file that could not be emptied.
        self._taken_bytes: dict[Path, int] = {}

    def add(self, groups: Iterable[AlertGroup]) -> None:
        """Append these and sync. Raises: OSError when no directory can be written."""
        # The line break comes first: a line that a crash has cut off must not spoil the next one.
        lines = b"".join(b"\n" + _encode(group) for group in groups)
        in_first(self._paths, lambda path: _append(path, lines))

    @property
    def waits(self) -> bool:
        """Whether the file has alerts; cheap."""
        return any(_size(path) != self._taken_bytes.get(path, 0) for path in self._paths)

    @contextmanager
    def taken(self) -> Iterator[list[AlertGroup]]:
        """The alerts in the file, deleted at the end of the block unless it raises.

        Empty while another process reads the file. `add` waits for the end of the block. After a
        crash within it, all alerts are still in the file.
        """
        with ExitStack() as stack:
            files: list[tuple[Path, BinaryIO]] = []
            for path in self._paths:
                # Skip a file that is missing, unreadable or locked by another process.
                with suppress(OSError):
                    file: BinaryIO = stack.enter_context(open(path, "r+b"))
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    taken = self._taken_bytes.get(path, 0)
                    file.seek(taken if taken <= _size(path) else 0)
                    files.append((path, file))
            yield [group for _, file in files for group in _read(file)]
            for path, file in files:
                self._taken_bytes[path] = file.tell()
                with suppress(OSError):  # else they would be taken again and again
                    file.truncate(0)
                    del self._taken_bytes[path]


def in_first(paths: Iterable[Path], act: Callable[[Path], T]) -> T:
    """The result of `act` for the first path for which it succeeds.

    Raises: OSError of the first path when it fails for all.
    """
    error: OSError | None = None
    for path in paths:
        try:
            return act(path)
        except OSError as found:
            error = error or found
    raise error or OSError("there is no directory for alerts")


def _append(path: Path, lines: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        size = os.fstat(fd).st_size
        if size < _MAX_BYTES:
            if os.write(fd, lines) < len(lines):  # the disk has room for a part of them
                os.ftruncate(fd, size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(fd)
    finally:
        os.close(fd)


def _read(file: BinaryIO) -> Iterator[AlertGroup]:
    for line in file:
        # Not an empty line, nor one that a crash cut off.
        with suppress(msgspec.MsgspecError, UnicodeError):
            yield _decode(line)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
