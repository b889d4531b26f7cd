"""The child's connection to the manager: blocking, since a child has one thing to do at a time."""

from __future__ import annotations

import os
import socket
import sys
from collections import deque
from time import monotonic

from cordata.core.frame import Splitter, TooLarge
from cordata.core.pool.codec import encode, to_child
from cordata.core.pool.loan import FEATURE
from cordata.core.pool.message import Cancel, ErrorFrame, Hello, Loan, Message, Welcome
from cordata.core.pool.order import Ready, Recall, Run, Skip, ToChild
from cordata.core.pool.spec import ChildSpec
from cordata.errors import ProtocolError
from cordata.pool import descriptors
from cordata.pool.child.borrower import Borrower
from cordata.pool.fingerprint import start_of

_FIRST_S, _LONGEST_S = 0.05, 2.0
#: One for all reads; a frame is copied out of it.
_buffer = bytearray(65536)
_view = memoryview(_buffer)
_buffers = [_buffer]


class Connection:
    """To the manager, while there is one. `messages` holds what came and was not looked at.

    It is dialled with empty hands only, so that a manager never meets a call of its predecessor.
    """

    def __init__(self, spec: ChildSpec) -> None:
        self._spec = spec
        self._splitter = Splitter()
        self.socket: socket.socket | None = None
        self.messages: deque[ToChild] = deque()
        #: Serials of calls that are to be given back, if they have not begun.
        self.skipped: set[int] = set()
        #: To whom the child is lent, and descriptors whose `loan` has not come whole.
        self.borrower = Borrower()
        self._files: list[int] = []
        self._read_at = 0.0
        #: Which run of the manager; "": none has said welcome.
        self.epoch = ""
        #: Largest frame that both sides take.
        self.max_bytes = spec.max_frame_bytes
        #: The spare has taken the slot over.
        self.adopted = not spec.spare
        #: The child takes calls; the manager hears of it in the hello, or by `ready`.
        self.warm = False
        self._told_warm = False
        #: The manager wants the loan to end.
        self.recalled = False
        self._pause_s = _FIRST_S
        #: Monotonic time of the next try.
        self.dial_at = 0.0

    def dial(self) -> bool:
        """Connect and say hello; the welcome comes when it comes. False: later again."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)  # a full backlog is no reason to wait
            sock.connect(self._spec.socket)
            sock.setblocking(True)
            sock.sendall(encode(self._hello()))
        except OSError:
            sock.close()
            self._wait()
            return False
        self.socket = sock
        self._splitter = Splitter(self._spec.max_frame_bytes)
        return True

    def lose(self) -> None:
        """This connection is over, with all that came over it."""
        if self.socket is not None:
            self.socket.close()
            self.socket = None
            self._wait()
        self.borrower.end()
        descriptors.close(self._files)
        self._files = []
        self.epoch = ""
        self.messages.clear()
        self.skipped.clear()

    def send(self, frame: bytes) -> None:
        """Whole, or the connection is lost."""
        if self.socket is not None:
            try:
                self.socket.sendall(frame)
            except OSError:
                self.lose()

    def end_loan(self) -> None:
        """The child is the manager's alone."""
        self.recalled = False
        told = self.borrower.end()
        if told is not None:
            self.send(encode(told))

    def tell_warm(self) -> None:
        """The manager hears that the child takes calls, unless its hello said so."""
        if self.warm and self.epoch and not self._told_warm:
            self._told_warm = True
            self.send(encode(Ready()))

    @property
    def amid_frame(self) -> bool:
        """Whether more has to come of what came."""
        return self._splitter.pending_bytes > 0

    def read(self, *, wait: bool = True) -> None:
        """One read; without `wait` only of what has come by now."""
        if self.socket is None:
            return
        try:
            flags = socket.MSG_CMSG_CLOEXEC | (0 if wait else socket.MSG_DONTWAIT)
            count, ancillary, _, _ = self.socket.recvmsg_into(_buffers, descriptors.SPACE, flags)
            if ancillary:
                self._files += descriptors.received(ancillary)
            self._read_at = monotonic()
            if count == 0:
                self.lose()
                return
            for frame in self._splitter.feed(_view[:count]):
                if isinstance(frame, TooLarge):
                    raise ProtocolError(f"a frame of {frame.length} bytes")
                self._take(to_child.decode(frame))
        except BlockingIOError:
            return
        except (OSError, ProtocolError) as error:
            if isinstance(error, ProtocolError):
                print(f"<3>the manager broke the protocol: {error}", file=sys.stderr)
            self.lose()

    def _wait(self) -> None:
        """Not at once again; a welcome makes the next pause the shortest one."""
        self.dial_at = monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, _LONGEST_S)

    def _take(self, message: ToChild) -> None:
        if isinstance(message, Run):
            message.read_at = self._read_at
            self.messages.append(message)
        elif isinstance(message, Skip):
            self.skipped.add(message.n)
        elif isinstance(message, Cancel):
            self.skipped.add(message.n)  # if it has not begun; else its command is told
            self.messages.append(message)
        elif isinstance(message, Loan):
            if len(self._files) < 2:
                raise ProtocolError("a loan without its descriptors")
            files, self._files = self._files[:2], self._files[2:]
            self.end_loan()
            self.borrower.begin(message.l, files, self.max_bytes)
        elif isinstance(message, Recall):
            # A call in hand is answered first: its answer goes over the socket of the loan.
            self.recalled = self.recalled or message.l == self.borrower.loan
        elif isinstance(message, Welcome):
            self.epoch = message.epoch
            self.max_bytes = min(message.max, self._spec.max_frame_bytes)
            self._pause_s = _FIRST_S
            self.tell_warm()
        elif isinstance(message, ErrorFrame):
            raise ProtocolError(f"{message.code}: {message.m}")
        else:
            self.messages.append(message)

    def _hello(self) -> Message:
        spec = self._spec
        self._told_warm = self.warm
        return Hello(
            role="child",
            name=spec.worker,
            pid=os.getpid(),
            start=start_of(),
            inv=spec.inv,
            max=spec.max_frame_bytes,
            cmds=list(spec.commands),
            has=[FEATURE],
            spare=not self.adopted,
            warm=self.warm,
            par=spec.parent,
        )
