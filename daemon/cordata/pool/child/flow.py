"""What the manager says while a call runs: that more chunks may come, or that nobody waits."""

from __future__ import annotations

import os
import select
from time import monotonic

from cordata.core.pool.message import Cancel, Credit
from cordata.pool.child.connection import Connection


class Flow:
    """Of one call at a time. A cancelled call is only told; it ends by itself, or is killed."""

    def __init__(self, connection: Connection, channel: int) -> None:
        self.connection = connection
        self._channel = channel
        self._id = self._serial = -1
        self._deadline = 0.0
        #: So many chunks may be sent.
        self.credits = 0
        #: Nobody waits for what is left of the call.
        self.over = False

    def begin(self, id: int, serial: int, *, credits: int, deadline: float) -> None:
        """A call begins."""
        self._id, self._serial = id, serial
        self.credits, self._deadline = credits, deadline
        self.over = False

    @property
    def late(self) -> bool:
        """Whether the call's deadline has passed."""
        return monotonic() >= self._deadline

    def look(self) -> bool:
        """See what came, without waiting. Whether the call is cancelled, or the manager gone."""
        if not self.over:
            self.connection.read(wait=False)
            self._take()
        return self.over

    def take_credit(self) -> bool:
        """Wait until one more chunk may be sent; False: nobody wants it."""
        while not self.look():
            if self.credits:
                self.credits -= 1
                return True
            left_s = self._deadline - monotonic()
            if left_s <= 0 or not self._wait(left_s):
                return False
        return False

    def _wait(self, timeout_s: float) -> bool:
        """Until the manager says something, or the deadline: False."""
        poll = select.poll()
        if self.connection.socket is not None:
            poll.register(self.connection.socket, select.POLLIN)
        poll.register(self._channel, 0)  # of the worker only its end concerns us now
        found = poll.poll(timeout_s * 1000.0)
        if any(fd == self._channel for fd, _ in found):
            os._exit(1)
        return bool(found)

    def _take(self) -> None:
        """Credits and cancels of this call; what else came stays."""
        messages = self.connection.messages
        if self.connection.socket is None:
            self.over = True
        for _ in range(len(messages)):
            message = messages.popleft()
            if isinstance(message, Credit):
                self.credits += message.n if message.id == self._id else 0
            elif isinstance(message, Cancel):
                # Another call of this id may have ended here: an id is its caller's own.
                same = message.n == self._serial if message.n else message.id == self._id
                self.over = self.over or same
            else:
                messages.append(message)
