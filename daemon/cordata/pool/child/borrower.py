"""The client to which this child is lent: its calls come over a socket of their own.

It has the child to itself as far as the manager has nothing for it (core/pool/loan.py); a call that
the child does not begin is answered `not_run`, and the client sends it to the manager.
"""

from __future__ import annotations

import mmap
import os
import socket
from collections import deque
from time import monotonic

from cordata.core.frame import Splitter, TooLarge
from cordata.core.pool.codec import encode, to_borrowed
from cordata.core.pool.histogram import BOUNDS_MS, Histogram
from cordata.core.pool.loan import serial_of
from cordata.core.pool.message import ErrorFrame
from cordata.core.pool.order import LentRun, Returned, ToBorrowed
from cordata.core.pool.page import SIZE, Writer
from cordata.errors import ProtocolError

#: How often the manager hears how many calls were run, and after which of them at once.
_TELL_S = 1.0
_LONG_US = 200_000
#: Most calls take no longer, and are not counted one by one.
_MOST_US = BOUNDS_MS[0] * 1000
_buffer = bytearray(65536)
_view = memoryview(_buffer)


class Borrower:
    """As Connection, over a loan; `socket` is None when there is none."""

    def __init__(self) -> None:
        self.socket: socket.socket | None = None
        self.messages: deque[ToBorrowed] = deque()
        #: Serials of calls that were cancelled before they began.
        self.skipped: set[int] = set()
        self.loan = 0
        #: The serial of its call number 0.
        self._first = 0
        #: The client closed its end, or broke the protocol.
        self.gone = False
        #: Something was read since the manager was heard out.
        self.fresh = False
        self._splitter = Splitter()
        self._memory: mmap.mmap | None = None
        #: What both sides see of the call in hand; while there is a loan.
        self.page: Writer
        #: Calls that were run, those of them that failed, and how long those took that took longer
        #: than most do; of which the manager was not told.
        self._calls = self._failed = 0
        self._run_ms = Histogram()
        self._told_at = 0.0

    def begin(self, loan: int, files: list[int], max_bytes: int) -> None:
        """The manager has lent the child; `files`: the client's socket and the page, ours now.

        Raises: OSError, without memory for the page.
        """
        try:
            self._memory = mmap.mmap(files[1], SIZE)
        except OSError:
            os.close(files[0])
            raise
        finally:
            os.close(files[1])
        self.socket = socket.socket(fileno=files[0])
        self.page = Writer(memoryview(self._memory))
        self.loan, self.gone = loan, False
        self._first = serial_of(loan, 0)
        self._splitter = Splitter(max_bytes)

    def end(self) -> Returned | None:
        """Nothing that the client sent begins any more; what to tell the manager, if there was a
        loan. The client learns it from the end of its socket.
        """
        if self.socket is None:
            return None
        self.page.end_lent()  # of a call in hand the manager had the answer, or will never have it
        self.socket.close()
        self.socket = None
        self.page.close()
        if self._memory is not None:
            self._memory.close()
        self.messages.clear()
        self.skipped.clear()
        return self._told(more=False)

    def count(self, now: float, run_us: int, *, failed: bool) -> Returned | None:
        """A call has ended; what to tell the manager, now and then."""
        self._calls += 1
        self._failed += failed
        if run_us > _MOST_US:
            self._run_ms.add(run_us / 1000)
        if now - self._told_at < _TELL_S and run_us < _LONG_US:
            return None
        return self.tell(now)

    @property
    def tell_at(self) -> float | None:
        """When the manager is to hear of calls that were run, if no other one comes before."""
        return self._told_at + _TELL_S if self._calls else None

    def tell(self, now: float) -> Returned:
        """What it has not heard."""
        self._told_at = now
        return self._told(more=True)

    def _told(self, *, more: bool) -> Returned:
        ms = self._run_ms.buckets
        ms[0] = self._calls - sum(ms)  # they are the others
        told = Returned(
            l=self.loan, n=self._calls, f=self._failed, ms=self._run_ms.take(), more=more
        )
        self._calls = self._failed = 0
        return told

    def read(self, *, wait: bool = True) -> None:
        """One read; without `wait` only of what has come by now. `gone` tells its end."""
        if self.socket is None:
            return
        try:
            count = self.socket.recv_into(_buffer, 0, 0 if wait else socket.MSG_DONTWAIT)
            read_at = monotonic()
            self.gone = count == 0
            self.fresh = True
            for frame in self._splitter.feed(_view[:count]):
                if isinstance(frame, TooLarge):
                    raise ProtocolError(f"a frame of {frame.length} bytes")
                message = to_borrowed.decode(frame)
                if type(message) is LentRun:
                    message.n = self._first + message.o
                    message.read_at = read_at
                else:
                    self.skipped.add(message.n)
                self.messages.append(message)
        except BlockingIOError:
            return
        except (OSError, ProtocolError):
            self.gone = True

    def send(self, frame: bytes) -> None:
        """Whole, or the loan is over."""
        if self.socket is not None:
            try:
                self.socket.sendall(frame)
            except OSError:
                self.gone = True

    def give_back(self, run: LentRun) -> None:
        """The child does not run it."""
        self.send(encode(ErrorFrame(id=run.id, code="not_run", m="the child has other work")))
