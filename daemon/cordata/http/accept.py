"""Accepting from listening sockets that all workers share, in even shares.

`loop.create_server` would call listen() again, which shrinks the queue, and would accept in bursts,
so that one worker takes nearly all connections. So one connection is accepted per turn of the loop
and socket. And since all workers wake for each connection and the one that the kernel's scheduler
favours takes it (measured: 64 keep-alive connections ended as 40, 16, 8 and 0), a worker that has
more connections than the least loaded one lets them wait for a few milliseconds.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import mmap
import os
import socket
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

from cordata import clock
from cordata.log import LogThrottle, logger

log = logger("cordata.http")

#: Pause after an error that the next accept would probably have, too (EMFILE, ENOMEM).
_PAUSE_S = 0.5
#: Pause in which a less loaded worker can take a connection, and the number of such pauses.
_DEFER_S = 0.001
_DEFER_TIMES = 5


class Acceptor:
    """Passes each accepted socket to `take`, from `open` to `close`.

    While `is_full()`, it accepts no connection, and calls `make_room()` about once a second.
    """

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        *,
        take: Callable[[socket.socket], None],
        is_full: Callable[[], bool],
        make_room: Callable[[], None],
        is_our_turn: Callable[[], bool] = lambda: True,
    ) -> None:
        self._sockets = tuple(sockets)
        self._take = take
        self._is_full = is_full
        self._make_room = make_room
        self._is_our_turn = is_our_turn
        self._deferred = 0
        self._log_throttle = LogThrottle()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listening = False
        self._resume_timer: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Begin to accept."""
        self._loop = asyncio.get_running_loop()
        for sock in self._sockets:
            sock.setblocking(False)
        self._listen()

    def close(self) -> None:
        """Stop accepting. The sockets stay open: other workers share them."""
        self._unlisten()
        self._loop = None
        if self._resume_timer is not None:
            self._resume_timer.cancel()
            self._resume_timer = None

    def resume(self) -> None:
        """Accept again if there is room, else make room. The sweep calls this."""
        if self._listening or self._loop is None or self._resume_timer is not None:
            return
        if self._is_full():
            self._make_room()
        else:
            self._listen()

    def _listen(self) -> None:
        if self._loop is not None:
            self._listening = True
            for sock in self._sockets:
                self._loop.add_reader(sock.fileno(), self._accept, sock)

    def _unlisten(self) -> None:
        if self._listening and self._loop is not None:
            self._listening = False
            for sock in self._sockets:
                self._loop.remove_reader(sock.fileno())

    def _accept(self, listener: socket.socket) -> None:
        if self._is_full():
            self._unlisten()
            self._make_room()
            return
        if self._deferred < _DEFER_TIMES and not self._is_our_turn():
            self._deferred += 1
            self._pause(_DEFER_S)
            return
        self._deferred = 0
        try:
            connection, _ = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return  # another worker was first, or the client has left
        except OSError as error:
            if error.errno == errno.EINVAL:  # it was shut down: the whole server stops
                self._unlisten()
                return
            # The connections stay in the queue, where another worker may accept them.
            if self._log_throttle.is_due(str(error)):
                log.error("cannot accept connections for now: %s", error)
            self._pause(_PAUSE_S)
            return
        connection.setblocking(False)
        self._take(connection)

    def _pause(self, seconds: float) -> None:
        self._unlisten()
        if self._loop is not None and self._resume_timer is None:
            self._resume_timer = self._loop.call_later(seconds, self._resume_after_pause)

    def _resume_after_pause(self) -> None:
        self._resume_timer = None
        self.resume()


_SLOTS = 64
#: owner (random, 0: free), key of the socket, connections, monotonic milliseconds of the heartbeat
_SLOT = struct.Struct("=QQQQ")
_COUNT_AT, _HEARTBEAT_AT = 16, 24
_SIZE = _SLOTS * _SLOT.size
_WORD = struct.Struct("=Q")
#: A slot whose owner's heartbeat is older than this is free.
_STALE_MS = 3000
#: A worker may have this many connections more than the least loaded one.
_SLACK = 1


class ConnectionCounts:
    """A small shared file with the number of connections of each worker.

    It only balances: a worker that hangs, or a lost file, costs milliseconds.
    """

    def __init__(self, path: Path, key: int) -> None:
        """`key` names the shared socket: its inode. Raises: OSError when the file is unusable."""
        self._key = key
        self._owner = int.from_bytes(os.urandom(7), "big") + 1
        # At the first start on PostgreSQL nothing else may have made the runtime directory yet.
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

    @classmethod
    def open(cls, path: Path, sockets: Sequence[socket.socket]) -> ConnectionCounts | None:
        """The counts; None if there are no sockets, or the file cannot be used (this is logged)."""
        if not sockets:
            return None
        try:
            return cls(path, os.fstat(sockets[0].fileno()).st_ino)
        except OSError as error:
            log.warning("connections may be spread unevenly over the workers: %s", error)
            return None

    def close(self) -> None:
        """Leave, and close the file."""
        self.leave()
        self._table.close()
        os.close(self._file)

    def heartbeat(self) -> None:
        """Write that this worker is alive and takes connections; call it once a second at least."""
        if not self._owns_slot():
            self._claim_slot()
        if self._offset is not None:
            _WORD.pack_into(self._table, self._offset + _HEARTBEAT_AT, _now_ms())

    def leave(self) -> None:
        """Free the slot: this worker takes no connections any more."""
        if self._owns_slot() and self._offset is not None:
            _SLOT.pack_into(self._table, self._offset, 0, 0, 0, 0)
        self._offset = None

    def publish(self, count: int) -> None:
        """Write the number of connections of this worker."""
        self._count = count
        if self._offset is not None:
            _WORD.pack_into(self._table, self._offset + _COUNT_AT, count)

    def is_our_turn(self) -> bool:
        """Whether no other worker has clearly fewer connections."""
        limit = self._count - _SLACK
        if limit <= 0:
            return True
        fresh = _now_ms() - _STALE_MS
        for owner, key, count, heartbeat_ms in _SLOT.iter_unpack(self._table[:]):
            if count < limit and key == self._key and owner and heartbeat_ms > fresh:
                return False
        return True

    def is_served(self) -> bool:
        """Whether any worker takes connections from the socket."""
        fresh = _now_ms() - _STALE_MS
        slots = _SLOT.iter_unpack(self._table[:])
        return any(key == self._key and owner and seen > fresh for owner, key, _, seen in slots)

    def _owns_slot(self) -> bool:
        return (
            self._offset is not None
            and _WORD.unpack_from(self._table, self._offset)[0] == self._owner
        )

    def _claim_slot(self) -> None:
        """Take a free slot; if none is free, the others do not count this worker."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return  # at the next heartbeat
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
    """Monotonic milliseconds, the same for all processes of a machine."""
    return int(clock.monotonic() * 1000)
