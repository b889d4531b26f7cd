"""Both directions of a connection kept in step: nothing is buffered without bound."""

from __future__ import annotations

import asyncio
import select

#: Bytes per second that a body must bring on the whole: a client that trickles (one byte before
#: each deadline) would hold a connection for ever.
_MIN_BODY_RATE = 512
#: Bytes per second of its responses that a client reads at least, or it counts as behind.
_MIN_READ_RATE = 16_384


class Flow(asyncio.BufferedProtocol):
    """The transport side of a connection; base of `Connection`."""

    __slots__ = (
        "_behind_since",
        "_body_deadline",
        "_paused",
        "_transport",
        "_unsent_bytes",
        "_unsent_since",
        "_writable",
        "_written_bytes",
    )
    _transport: asyncio.Transport

    def __init__(self) -> None:
        self._transport = None  # type: ignore[assignment] # until connection_made
        #: Reading is paused: the application is behind, or too much was pipelined.
        self._paused = False
        #: Set while the client keeps up with what is written; None: it always has.
        self._writable: asyncio.Event | None = None
        self._unsent_bytes = 0
        self._unsent_since = 0.0
        self._written_bytes = 0
        #: When something was first seen unsent, and how many bytes had been sent by then.
        self._behind_since: tuple[float, int] | None = None
        #: When the body is overdue, however steadily it comes.
        self._body_deadline = 0.0

    @property
    def connected(self) -> bool:
        """Whether the transport has come: the event loop takes a turn or two to set it up."""
        return self._transport is not None

    def write(self, data: bytes) -> None:
        """Send bytes, unless the connection is going."""
        if not self._transport.is_closing():
            self._written_bytes += len(data)
            self._transport.write(data)

    async def writable(self) -> None:
        """Wait until the client has read enough of what was written."""
        if self._writable is not None:
            await self._writable.wait()

    @property
    def is_writable(self) -> bool:
        """Whether `writable` would return at once."""
        return self._writable is None or self._writable.is_set()

    def pause_writing(self) -> None:
        """The client does not keep up."""
        if self._writable is None:
            self._writable = asyncio.Event()
        self._writable.clear()

    def resume_writing(self) -> None:
        """The client has caught up."""
        if self._writable is not None:
            self._writable.set()

    def pause_reading(self) -> None:
        """Let the client wait."""
        if not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Let it go on."""
        if self._paused:
            self._paused = False
            if not self._transport.is_closing():
                self._transport.resume_reading()

    def expect_body(self, now: float, limit_s: float) -> float:
        """A body begins, or goes on after we paused it. Returns its deadline."""
        self._body_deadline = now + limit_s
        return self._body_deadline

    def got_body(self, size: int, now: float, limit_s: float) -> float:
        """`size` bytes of it came: each buys a little time. Returns its next deadline."""
        self._body_deadline += size / _MIN_BODY_RATE
        return min(now + limit_s, self._body_deadline)

    def has_stalled(self, now: float, limit_s: float) -> bool:
        """Whether the client has read nothing of what waits for it for `limit_s`."""
        unsent = self._transport.get_write_buffer_size()
        if unsent != self._unsent_bytes:
            self._unsent_bytes, self._unsent_since = unsent, now
            return False
        return unsent > 0 and now - self._unsent_since > limit_s

    def behind_s(self, now: float) -> float:
        """Seconds by which the client is late in reading its responses, at `_MIN_READ_RATE`.

        Has to be asked about once a second: it looks back to when it was first asked.
        """
        unsent = self._transport.get_write_buffer_size()
        sent = self._written_bytes - unsent
        if not unsent:
            self._behind_since = None
            return 0.0
        since, had = self._behind_since or (now, sent)
        late_s = now - since - (sent - had) / _MIN_READ_RATE
        self._behind_since = (since, had) if late_s > 0 else (now, sent)
        return max(0.0, late_s)

    def has_input(self) -> bool:
        """Whether something has arrived that the loop has not read yet."""
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket"), select.POLLIN)
        return bool(poll.poll(0))

    def abort(self) -> None:
        """Cut the connection off: the client sees that its response is not whole."""
        self._transport.abort()
