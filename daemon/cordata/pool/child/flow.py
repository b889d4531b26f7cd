"""What the manager says while a call runs: that more chunks may come, or that nobody waits."""

from __future__ import annotations

import os
import select
from collections import deque
from time import monotonic
from typing import Any

from cordata.core.pool.loan import LENT
from cordata.core.pool.message import Cancel, Credit
from cordata.pool.child.borrower import Borrower
from cordata.pool.child.connection import Connection


class Flow:
    """Of one call at a time. A cancelled call is only told; it ends by itself, or is killed."""

    def __init__(self, connection: Connection, channel: int) -> None:
        self.connection = connection
        #: Who sent the call: the manager, or the client that has the child on loan.
        self.source: Connection | Borrower = connection
        self._channel = channel
        self._id = self._serial = -1
        self._deadline = 0.0
        #: So many chunks may be sent.
        self.credits = 0
        #: Nobody waits for what is left of the call.
        self.over = False

    def begin(self, id: int, serial: int, *, credits: int, deadline: float) -> None:
        """A call begins."""
        borrowed = serial >= LENT
        self.source = self.connection.borrower if borrowed else self.connection
        self._id, self._serial = id, serial
        self.credits, self._deadline = credits, deadline
        self.over = False

    @property
    def borrowed(self) -> bool:
        """Whether the manager does not know the call."""
        return self.source is not self.connection

    @property
    def late(self) -> bool:
        """Whether the call's deadline has passed."""
        return monotonic() >= self._deadline

    def look(self) -> bool:
        """See what came, without waiting. Whether the call is cancelled, or the manager gone."""
        if not self.over:
            self.source.read(wait=False)
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
        if self.source.socket is not None:
            poll.register(self.source.socket, select.POLLIN)
        poll.register(self._channel, 0)  # of the worker only its end concerns us now
        found = poll.poll(timeout_s * 1000.0)
        if any(fd == self._channel for fd, _ in found):
            os._exit(1)
        return bool(found)

    def _take(self) -> None:
        """Credits and cancels of this call; what else came stays."""
        messages: deque[Any] = self.source.messages
        if self.source.socket is None or (self.borrowed and self.connection.borrower.gone):
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
