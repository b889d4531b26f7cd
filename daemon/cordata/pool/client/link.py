"""One connection of an async client: frames in and out of a socket that the event loop watches.

No transport and no task: what a turn of the loop has to send leaves in one write at its end, and
`sent` tells to the byte what the kernel took, so that after a loss it is known which frames no
manager can have seen whole.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

from cordata.core.frame import Splitter, TooLarge
from cordata.core.pool.codec import encode, to_client
from cordata.core.pool.message import Hello, Message, ToClient
from cordata.errors import ProtocolError
from cordata.pool import descriptors
from cordata.pool.client.wire import MAX_TAKEN

if TYPE_CHECKING:
    from cordata.pool.client.borrowed import Borrowed

_BUFFER = 1 << 17
#: More than this lies here only when the manager does not read; calls then wait where they can
#: still be taken back.
_ROOM = 1 << 20
#: A connection that ends amid an answer after a pause as long as this may have ended for it.
_PAUSE_S = 1.0
#: Reads with less between them belong together.
_TOGETHER_S = 0.1


class Link:
    """A connection from its dialling to its end. `heard` and `lost` are called from the loop."""

    __slots__ = (
        "_active_at",
        "_broken",
        "_buffer",
        "_buffers",
        "_heard",
        "_loop",
        "_lost",
        "_out",
        "_paused_s",
        "_rest",
        "_room_again",
        "_scheduled",
        "_socket",
        "_splitter",
        "_view",
        "borrowed",
        "closed",
        "files",
        "leaving",
        "manager",
        "max_bytes",
        "queued",
        "ready",
        "sent",
    )

    def __init__(
        self,
        path: str,
        hello: Hello,
        *,
        heard: Callable[[Link, ToClient | TooLarge], None],
        lost: Callable[[Link, str], None],
        room_again: Callable[[], None],
        borrowed: Borrowed | None = None,
    ) -> None:
        """Dial, which takes no time at a unix socket. Raises: OSError when nobody listens.

        `borrowed`: a child on loan, whose socket is there already.
        """
        self._loop = asyncio.get_running_loop()
        self._heard, self._lost, self._room_again = heard, lost, room_again
        self._splitter = Splitter(MAX_TAKEN)
        self._buffer = bytearray(_BUFFER)
        self._view = memoryview(self._buffer)
        self._buffers = [self._buffer]
        self._out: list[bytes] = []
        #: Of what was handed to the kernel last, the part that it did not take.
        self._rest: memoryview | None = None
        self._scheduled = False
        #: When something was read or written last, and for how long nothing was before that.
        self._active_at = monotonic()
        self._paused_s = 0.0
        #: The manager is gone, but what it said before may still be read.
        self._broken = False
        self.closed = False
        #: The manager has answered the hello.
        self.ready = False
        #: The manager takes no new calls here.
        self.leaving = False
        #: The largest frame that the manager takes.
        self.max_bytes: int | None = None
        #: Bytes given to `send`, and those of them that the kernel has.
        self.queued = 0
        self.sent = 0
        #: Descriptors that came with frames, until those are understood.
        self.files: list[int] = []
        self.borrowed = borrowed
        #: The connection to the manager: this one, or that over which the child was lent.
        self.manager = self if borrowed is None else borrowed.manager
        if borrowed is not None:
            self._socket = borrowed.socket
            self.ready = True
            self._loop.add_reader(self._socket, self._readable)
            return
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            self._socket.connect(path)
        except OSError:
            self._socket.close()
            raise
        self._loop.add_reader(self._socket, self._readable)
        self.send(encode(hello))

    @property
    def has_room(self) -> bool:
        """Whether frames may be given to it."""
        return self.queued - self.sent < _ROOM

    def send(self, frame: bytes) -> int:
        """Send it at the end of this turn; gives the value of `sent` at which it is all gone."""
        self._out.append(frame)
        self.queued += len(frame)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._flush)
        return self.queued

    def send_now(self, data: bytes) -> None:
        """Send it without waiting for the end of this turn."""
        self._out.append(data)
        self.queued += len(data)
        self._flush()

    def tell(self, message: Message) -> None:
        """Send what has no answer."""
        if not self.closed:
            self.send(encode(message))

    def close(self) -> None:
        """End it, without a word to anybody."""
        if self.closed:
            return
        self.closed = True
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._socket.close()
        self._out.clear()
        self._rest = None
        descriptors.close(self.files)
        self.files.clear()

    def disown(self) -> None:
        """After a fork, in the child: the connection is the parent's. Close this process's copy
        of the descriptors only: the event loop's epoll is the parent's, too.
        """
        self.closed = True
        self._socket.close()
        descriptors.close(self.files)
        self.files.clear()

    def _lose(self, reason: str) -> None:
        if not self.closed:
            self.close()
            self._lost(self, reason)

    def _flush(self) -> None:
        self._scheduled = False
        if self._rest is not None or self.closed or self._broken or not self._out:
            return
        data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
        self._out.clear()
        self._write(memoryview(data))
        if self._rest is not None:
            self._loop.add_writer(self._socket, self._writable)

    def _write(self, data: memoryview) -> None:
        try:
            count = self._socket.send(data)
        except (BlockingIOError, InterruptedError):
            count = 0
        except OSError:
            # The reader finds the end, after the answers that came before it.
            self._broken, self._rest = True, None
            self._loop.remove_writer(self._socket)
            return
        self.sent += count
        self._active_at = monotonic()
        self._rest = data[count:] if count < len(data) else None

    def _writable(self) -> None:
        if self._rest is not None:
            self._write(self._rest)
        if self._rest is None and not self.closed:
            self._loop.remove_writer(self._socket)
            self._flush()
            if self.has_room:
                self._room_again()

    def _readable(self) -> None:
        now = monotonic()
        paused_s, self._active_at = now - self._active_at, now
        if paused_s > _TOGETHER_S:
            self._paused_s = paused_s
        try:
            # A plain recv would lose the descriptors that come with a loan.
            count, ancillary, _, _ = self._socket.recvmsg_into(
                self._buffers, descriptors.SPACE, socket.MSG_CMSG_CLOEXEC
            )
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lose(self._how(error.strerror or str(error)))
            return
        if ancillary:
            self.files += descriptors.received(ancillary)
        if not count:
            self._lose(self._how("the manager closed the connection"))
            return
        try:
            for frame in self._splitter.feed(self._view[:count]):
                self._heard(self, frame if isinstance(frame, TooLarge) else to_client.decode(frame))
                if self.closed:
                    return
        except ProtocolError as error:
            self._lose(str(error))

    def _how(self, reason: str) -> str:
        """The reason, and ours, if it is likely to be: a manager keeps only so much unread."""
        if self._splitter.pending_bytes:
            reason += " amid an answer"
            if self._paused_s >= _PAUSE_S:
                reason += f"; nothing was read here for {self._paused_s:.1f} s"
        return reason
