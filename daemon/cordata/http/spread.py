"""Even spread of connections: workers that share a socket see each other's number of connections.

All workers wake for every connection and the one that the scheduler likes takes it: measured, 64
keep-alive connections ended as 40, 16, 8 and 0. So each worker writes its count into a small shared
file, and one that has more than the least loaded lets a connection wait for a few milliseconds.
It is advice only: a worker that does not answer, or a lost file, costs those milliseconds.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import socket
import struct
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from cordata import clock
from cordata.log import logger

log = logger("cordata.http")

_SLOTS = 64
#: owner (random, 0: free), key of the socket, connections, monotonic milliseconds of the last sign
_SLOT = struct.Struct("=QQQQ")
_COUNT_AT, _BEAT_AT = 16, 24
_SIZE = _SLOTS * _SLOT.size
_WORD = struct.Struct("=Q")
#: A slot whose owner gave no sign for this long is free.
_STALE_MS = 3000
#: A worker may have this many connections more than the least loaded one.
_SLACK = 1


class Spread:
    """This worker's slot in the table, and a view of the others'."""

    def __init__(self, path: Path, key: int) -> None:
        """`key` names the shared socket: its inode. Raises: OSError when the file is unusable."""
        self._key = key
        self._owner = int.from_bytes(os.urandom(7), "big") + 1
        # Nobody else may have needed the runtime directory yet: the first start, on PostgreSQL.
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o660)
        try:
            # Not ftruncate: on a full file system the first write to a hole is a SIGBUS.
            os.posix_fallocate(self._file, 0, _SIZE)
            self._table = mmap.mmap(self._file, _SIZE)
        except BaseException:
            os.close(self._file)
            raise
        self._offset: int | None = None
        self._count = 0

    def __enter__(self) -> Spread:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Take no part any more."""
        self.leave()
        self._table.close()
        os.close(self._file)

    def beat(self) -> None:
        """Say that this worker is alive and takes connections; at least once a second."""
        if not self._mine():
            self._claim()
        if self._offset is not None:
            _WORD.pack_into(self._table, self._offset + _BEAT_AT, _now_ms())

    def leave(self) -> None:
        """Stop counting: this worker takes no connections now."""
        if self._mine() and self._offset is not None:
            _SLOT.pack_into(self._table, self._offset, 0, 0, 0, 0)
        self._offset = None

    def publish(self, count: int) -> None:
        """The number of connections of this worker."""
        self._count = count
        if self._offset is not None:
            _WORD.pack_into(self._table, self._offset + _COUNT_AT, count)

    def is_our_turn(self) -> bool:
        """Whether no other worker has clearly fewer connections."""
        limit = self._count - _SLACK
        if limit <= 0:
            return True
        fresh = _now_ms() - _STALE_MS
        for owner, key, count, beat_ms in _SLOT.iter_unpack(self._table[:]):
            if count < limit and key == self._key and owner and beat_ms > fresh:
                return False
        return True

    def is_served(self) -> bool:
        """Whether a worker takes connections from the socket, this one or another."""
        fresh = _now_ms() - _STALE_MS
        slots = _SLOT.iter_unpack(self._table[:])
        return any(key == self._key and owner and beat > fresh for owner, key, _, beat in slots)

    def _mine(self) -> bool:
        return (
            self._offset is not None
            and _WORD.unpack_from(self._table, self._offset)[0] == self._owner
        )

    def _claim(self) -> None:
        """Take a free slot; without one, this worker is not seen by the others."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return  # at the next beat
        try:
            stale = _now_ms() - _STALE_MS
            for number, slot in enumerate(_SLOT.iter_unpack(self._table[:])):
                if not slot[0] or slot[3] < stale:
                    self._offset = number * _SLOT.size
                    fields = (self._owner, self._key, self._count, _now_ms())
                    _SLOT.pack_into(self._table, self._offset, *fields)
                    return
            self._offset = None
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)


def _now_ms() -> int:
    """The monotonic clock is one for all processes of a machine."""
    return int(clock.monotonic() * 1000)


def open_spread(path: Path | None, sockets: Sequence[socket.socket]) -> Spread | None:
    """Of a server, if it has a file for it, and that can be used."""
    if path is None or not sockets:
        return None
    try:
        return Spread(path, os.fstat(sockets[0].fileno()).st_ino)
    except OSError as error:
        log.warning("connections may be spread unevenly over the workers: %s", error)
        return None
