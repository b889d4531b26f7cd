"""A file for alerts that cannot wait for the store: it is away, or their process ends."""

from __future__ import annotations

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
#: Beyond it nothing is added: some thousand alerts, of which the first tell what is wrong.
_MAX_BYTES = 1 << 20

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(AlertGroup).decode


class Spool:
    """Lines of JSON in the first directory that can be written; processes of a host share it."""

    def __init__(self, directories: Sequence[Path]) -> None:
        self._directories = directories

    def add(self, groups: Iterable[AlertGroup]) -> None:
        """Keep these, on the disk when it returns. Raises: OSError when nothing can be written."""
        lines = b"".join(_encode(group) + b"\n" for group in groups)
        in_first(self._directories, lambda directory: _append(directory / _FILE, lines))

    @property
    def waits(self) -> bool:
        """Whether there is anything; cheap."""
        return any(_size(directory / _FILE) for directory in self._directories)

    @contextmanager
    def taken(self) -> Iterator[list[AlertGroup]]:
        """The alerts in the file, deleted when the block ends well; none if another process reads.

        A process that adds meanwhile waits. After a crash within the block all is there again.
        """
        with ExitStack() as stack:
            files: list[BinaryIO] = []
            for directory in self._directories:
                # Missing, not ours, or locked by another process: this time without it.
                with suppress(OSError):
                    file: BinaryIO = stack.enter_context(open(directory / _FILE, "r+b"))
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    files.append(file)
            yield [group for file in files for group in _read(file)]
            for file in files:
                file.truncate(0)


def in_first(directories: Iterable[Path], act: Callable[[Path], T]) -> T:
    """Act in the first directory where that succeeds. Raises: OSError, that of the first one."""
    error: OSError | None = None
    for directory in directories:
        try:
            return act(directory)
        except OSError as found:
            error = error or found
    raise error or OSError("there is no directory for alerts")


def _append(path: Path, lines: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        if os.fstat(fd).st_size < _MAX_BYTES:
            os.write(fd, lines)
            os.fsync(fd)
    finally:
        os.close(fd)


def _read(file: BinaryIO) -> Iterator[AlertGroup]:
    for line in file:
        with suppress(msgspec.MsgspecError, UnicodeError):  # cut off by a crash: without it
            yield _decode(line)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
