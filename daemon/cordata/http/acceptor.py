"""Accepts from the inherited listening sockets: one connection per loop tick and socket.

The sockets are shared by all workers. `loop.create_server` would call listen() again and shrink
the queue, and would accept in bursts, so that one worker takes nearly all connections.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Sequence

from cordata.log import logger

log = logger("cordata.http")

#: The pause after an error that the next accept would meet again (EMFILE, ENOMEM).
_PAUSE_S = 0.5
#: A connection waits this long for a less loaded worker, and so often at most.
_DEFER_S = 0.001
_DEFER_TIMES = 5
#: Errors of one connection, gone before it was taken; see accept(2).
_GONE = frozenset(
    (
        errno.ECONNABORTED,
        errno.EPROTO,
        errno.EINTR,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENONET,
        errno.ENOPROTOOPT,
        errno.EOPNOTSUPP,
        errno.EPERM,
        errno.ETIMEDOUT,
    )
)


class Acceptor:
    """Hands each accepted socket to `take`, while it is open and `full()` is not true."""

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        *,
        take: Callable[[socket.socket], None],
        full: Callable[[], bool],
        is_our_turn: Callable[[], bool] = lambda: True,
    ) -> None:
        self._sockets = tuple(sockets)
        self._take = take
        self._full = full
        self._is_our_turn = is_our_turn
        self._deferred = 0
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
        """Accept no more. The sockets stay open: other workers share them."""
        self._unlisten()
        self._loop = None
        if self._resume_timer is not None:
            self._resume_timer.cancel()
            self._resume_timer = None

    def resume(self) -> None:
        """There may be room again."""
        if not self._listening and self._loop is not None and self._resume_timer is None:
            if not self._full():
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
        if self._full():
            self._unlisten()
            return
        if self._deferred < _DEFER_TIMES and not self._is_our_turn():
            self._deferred += 1
            self._pause(_DEFER_S)
            return
        self._deferred = 0
        try:
            connection, _ = listener.accept()
        except (BlockingIOError, InterruptedError):
            return  # another worker was first
        except OSError as error:
            if error.errno not in _GONE:
                # What waits stays in the queue, where another worker may take it.
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
