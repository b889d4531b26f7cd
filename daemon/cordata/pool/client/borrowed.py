"""One child that a client has on loan: its socket, its page, and the calls it was given."""

from __future__ import annotations

import asyncio
import mmap
import socket
from collections import deque
from time import monotonic

from cordata.core.pool import page
from cordata.core.pool.message import Loan
from cordata.core.pool.sending import BUDGET_US, DEPTH
from cordata.pool import descriptors
from cordata.pool.client.link import Link
from cordata.pool.client.request import Request


class Borrowed:
    """One child on loan."""

    __slots__ = (
        *("answers", "coming", "ending", "flying", "given", "grace_s", "id", "idle_at", "link"),
        *("load_us", "manager", "map", "order", "out", "page", "scheduled", "seen", "slow"),
        *("socket", "waiting", "worker", "written"),
    )

    def __init__(self, loan: Loan, manager: Link, files: list[int]) -> None:
        """`files`: our end of its socket, and the page, its own from now on. Raises: OSError."""
        self.id, self.worker, self.grace_s = loan.l, loan.wk, loan.g
        self.manager = manager
        self.socket = socket.socket(fileno=files[0])
        self.socket.setblocking(False)
        try:
            self.map = mmap.mmap(files[1], page.SIZE)
        except OSError:
            self.socket.close()
            raise
        finally:
            descriptors.close(files[1:])
        self.page = memoryview(self.map)
        self.link: Link
        #: Calls by their id, in the order in which it begins them.
        self.given: dict[int, Request] = {}
        self.load_us = 0.0
        #: When it had nothing to do any more.
        self.idle_at = 0.0
        #: The number of the last one, and of the last one that was written.
        self.order = self.written = 0
        #: Frames that are not written yet, since the child has enough to do.
        self.out: list[bytes] = []
        self.scheduled = False
        #: Calls that were written, and are not answered.
        self.flying = 0
        #: How many answers came, and had come when that was looked at last.
        self.answers = self.seen = 0
        #: It is in a long call.
        self.slow = False
        #: It gets no more calls.
        self.ending = False
        #: Calls that the manager has, and that are meant for this child.
        self.coming = 0
        #: Calls of sessions that are here.
        self.waiting: deque[Request] = deque()

    def has_room(self, cost_us: float) -> bool:
        """For such a call."""
        if not self.given:
            return not self.slow
        room = len(self.given) < DEPTH and self.load_us + cost_us <= BUDGET_US
        return room and not self.slow

    def pop(self, id: int) -> Request | None:
        """A call is not here any more."""
        request = self.given.pop(id, None)
        if request is not None:
            self.load_us -= request.cost_us
            if not self.given:
                self.load_us, self.idle_at = 0.0, monotonic()
        return request

    def close(self) -> None:
        """Of its page nothing is wanted any more."""
        self.link.close()
        self.page.release()
        self.map.close()

    def put(self, frame: bytes) -> None:
        """Write it, together with others: when half of what the child may have is done. Then it has
        work until this comes, and a few calls take one system call on either side, and wake nobody.
        """
        self.out.append(frame)
        self.schedule()

    def schedule(self) -> None:
        """See `put`."""
        if self.out and not self.scheduled and 2 * self.flying <= len(self.given):
            self.scheduled = True
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Write all of it."""
        self.scheduled = False
        if self.out and not self.link.closed:
            self.flying += len(self.out)
            self.written = self.order
            self.link.send_now(b"".join(self.out))
            self.out.clear()
