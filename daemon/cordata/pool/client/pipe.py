"""One blocking connection to the manager: the sync client's."""

from __future__ import annotations

import socket
import time
from collections import deque
from contextlib import suppress
from time import monotonic
from typing import TypeAlias

from cordata.core.frame import Splitter, TooLarge
from cordata.core.pool.codec import encode, to_client
from cordata.core.pool.message import (
    Ask,
    CallFrame,
    Cancel,
    Chunk,
    ErrorFrame,
    GlobalOp,
    Goaway,
    Hello,
    Message,
    SessionOp,
    ToClient,
    Welcome,
)
from cordata.errors import FrameTooLarge, PoolClosed, PoolUnavailable, ProtocolError
from cordata.pool.client.wire import (
    ANSWER_GRACE_S,
    DIAL_MAX_S,
    DIAL_MIN_S,
    FORKED,
    MAX_TAKEN,
    error_of,
)

#: So long at most nobody looks for an interrupt: one that comes right before a system call, or to
#: another thread, does not end it.
_LOOK_S = 0.5
#: A unix socket takes so many whole or not at all.
_WHOLE_BYTES = 16_384
#: What has one answer, or a stream of them.
Question: TypeAlias = CallFrame | SessionOp | GlobalOp | Ask


class PipeLost(Exception):
    """The connection ended. `whole`: the manager may have what was sent last."""

    def __init__(self, reason: str, *, whole: bool) -> None:
        super().__init__(reason)
        self.whole = whole


class Pipe:
    """A socket with the handshake done. Whatever goes wrong, it is closed and not used again."""

    def __init__(self, path: str, hello: Hello, deadline: float) -> None:
        """Raises: OSError (TimeoutError), PipeLost, and what the manager refuses us for."""
        self._splitter = Splitter(MAX_TAKEN)
        self._messages: deque[ToClient | TooLarge] = deque()
        self._max_bytes: int | None = None
        #: The id of the last question.
        self._asked = 0
        #: It may have been sent whole, certainly not in part, and its last answer has not come.
        self._open = False
        #: The manager takes no new calls here.
        self.leaving = False
        self._disowned = False
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.settimeout(_left(deadline))
            self._socket.connect(path)
            self.send(hello, deadline)
            message = self.receive(deadline)
            if isinstance(message, ErrorFrame):
                raise error_of(message)
            if not isinstance(message, Welcome):
                raise ProtocolError(f"{type(message).__name__} came in place of a welcome")
            self._max_bytes = message.max
        except BaseException:
            self.close()
            raise

    def ask(self, question: Question, deadline: float) -> None:
        """Send it with an id of its own; as `send`."""
        self._asked += 1
        question.id = self._asked
        frame = encode(question, max_bytes=self._max_bytes)
        # An interrupt may come before we know that it was written; half of one is never followed.
        self._open = len(frame) <= _WHOLE_BYTES
        self._write(frame, deadline)
        self._open = True

    def send(self, message: Message, deadline: float) -> None:
        """Raises: FrameTooLarge; PipeLost (or TimeoutError), and then it was not sent whole."""
        self._write(encode(message, max_bytes=self._max_bytes), deadline)

    def _write(self, frame: bytes, deadline: float) -> None:
        if self._disowned:
            raise PoolClosed(FORKED)
        self._socket.settimeout(_left(deadline))
        try:
            self._socket.sendall(frame)
        except TimeoutError:
            raise
        except OSError as error:
            raise PipeLost(error.strerror or str(error), whole=False) from None

    def receive(self, deadline: float) -> ToClient:
        """The next message but a goaway. Raises: PipeLost, TimeoutError, FrameTooLarge."""
        if self._disowned:
            raise PoolClosed(FORKED)
        while True:
            while self._messages:
                message = self._messages.popleft()
                if isinstance(message, TooLarge):
                    text = f"an answer of {message.length} bytes came, which is more than is taken"
                    length = message.length
                    raise FrameTooLarge(text, length_bytes=length, limit_bytes=MAX_TAKEN)
                if not isinstance(message, Goaway):
                    self._open = self._open and isinstance(message, Chunk)
                    return message
                self.leaving = True
            self._read(deadline)

    def close(self, *, hard: bool = False) -> None:
        """End it; what was under way is cancelled by that. `hard`: its child is killed if it does
        not end soon. That is waited for until the manager says that it knows, which is at once:
        where it finds the connection closed before it has read that, it never does.
        """
        try:
            if hard and self._open:
                deadline = monotonic() + ANSWER_GRACE_S
                with suppress(PipeLost, TimeoutError, FrameTooLarge, ProtocolError):
                    self.send(Cancel(id=self._asked, hard=True), deadline)
                    while self._open:
                        self.receive(deadline)
        finally:
            self._socket.close()

    def disown(self) -> None:
        """After a fork, in the child: the connection is the parent's. Close this process's copy
        of the descriptor and send nothing.
        """
        self._disowned, self._open = True, False
        self._socket.close()

    def _read(self, deadline: float) -> None:
        """What comes within a moment. Raises: PipeLost; TimeoutError at the deadline."""
        self._socket.settimeout(min(_left(deadline), _LOOK_S))
        try:
            data = self._socket.recv(1 << 17)
        except TimeoutError:
            return
        except OSError as error:
            raise PipeLost(error.strerror or str(error), whole=True) from None
        if not data:
            raise PipeLost("the manager closed the connection", whole=True)
        for frame in self._splitter.feed(data):
            self._messages.append(frame if isinstance(frame, TooLarge) else to_client.decode(frame))


def dialled(path: str, hello: Hello, deadline: float) -> Pipe:
    """A connection, as soon as there is a manager. Raises: PoolUnavailable when there is none
    before the deadline, and what the manager refuses us for.
    """
    pause_s = DIAL_MIN_S
    while True:
        try:
            return Pipe(path, hello, deadline)
        except (OSError, PipeLost) as error:
            reason = getattr(error, "strerror", None) or str(error)
        if monotonic() + pause_s >= deadline:
            time.sleep(max(0.0, deadline - monotonic()))
            raise PoolUnavailable(f"nobody answered at {path} ({reason})")
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, DIAL_MAX_S)


def _left(deadline: float) -> float:
    """Seconds left. Raises: TimeoutError."""
    left_s = deadline - monotonic()
    if left_s <= 0:
        raise TimeoutError("the deadline has passed")
    return left_s
