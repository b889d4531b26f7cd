"""Flow control of one connection, in both directions.

No buffer grows without bound: reading pauses while the application is slow, and a streaming
application waits while the client is slow. The client's speed is measured about once a second.
"""

from __future__ import annotations

import asyncio
import select

#: Bytes per second that a client has to read of its responses; else it lags behind.
_MIN_READ_RATE = 16_384


class Flow:
    """The transport of one connection, with flow control."""

    _transport: asyncio.Transport

    def __init__(self) -> None:
        self._transport = None  # type: ignore[assignment] # until `connect`
        #: The application is behind with the body, or too much was pipelined.
        self.reading_paused = False
        #: Set while the client keeps up with what is written; None: it always has.
        self._writable: asyncio.Event | None = None
        self._written_bytes = 0
        #: Seconds for which the client has read none of the waiting bytes.
        self.stalled_s = 0.0
        #: Seconds by which the client is behind `_MIN_READ_RATE` in reading its responses.
        self.read_lag_s = 0.0
        self._unsent_bytes = 0
        self._stalled_since = 0.0
        #: Since when bytes wait, and how many had been sent by then.
        self._lagging_since: tuple[float, int] | None = None

    def connect(self, transport: asyncio.Transport) -> None:
        """Set the transport."""
        self._transport = transport

    @property
    def connected(self) -> bool:
        """Whether the transport is set up: that takes the event loop a turn or two."""
        return self._transport is not None

    # To the client

    def write(self, data: bytes) -> None:
        """Send bytes, unless the connection is closing."""
        if not self._transport.is_closing():
            self._written_bytes += len(data)
            self._transport.write(data)

    @property
    def is_writable(self) -> bool:
        """Whether `writable` would return at once."""
        return self._writable is None or self._writable.is_set()

    async def writable(self) -> None:
        """Wait until the client has read enough of what was written."""
        if self._writable is not None:
            await self._writable.wait()

    def pause_writing(self) -> None:
        """The client reads too slowly."""
        if self._writable is None:
            self._writable = asyncio.Event()
        self._writable.clear()

    def resume_writing(self) -> None:
        """The client has caught up."""
        if self._writable is not None:
            self._writable.set()

    def measure(self, now: float) -> None:
        """Update `stalled_s` and `read_lag_s`. To be called about once a second."""
        unsent = self._transport.get_write_buffer_size()
        if unsent != self._unsent_bytes:
            self._unsent_bytes, self._stalled_since = unsent, now
        self.stalled_s = now - self._stalled_since if unsent else 0.0
        if not unsent:
            self._lagging_since, self.read_lag_s = None, 0.0
            return
        sent = self._written_bytes - unsent
        since, sent_before = self._lagging_since or (now, sent)
        read_lag_s = now - since - (sent - sent_before) / _MIN_READ_RATE
        self._lagging_since = (since, sent_before) if read_lag_s > 0 else (now, sent)
        self.read_lag_s = max(0.0, read_lag_s)

    @property
    def has_unsent(self) -> bool:
        """Whether some of what was written waits for the client to read."""
        return self._transport.get_write_buffer_size() > 0

    # From the client

    def pause_reading(self) -> None:
        """Stop reading: the kernel then slows the client down."""
        if not self.reading_paused:
            self.reading_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        if self.reading_paused:
            self.reading_paused = False
            if not self._transport.is_closing():
                self._transport.resume_reading()

    def has_input(self) -> bool:
        """Whether bytes have arrived that the event loop has not read yet."""
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket"), select.POLLIN)
        return bool(poll.poll(0))

    # The end

    @property
    def is_closing(self) -> bool:
        """Whether the connection is closing, so that writes are ignored."""
        return self._transport.is_closing()

    def write_eof(self) -> None:
        """Close the server's side once everything is sent."""
        self._transport.write_eof()

    def close(self) -> None:
        """Close once everything is sent."""
        self._transport.close()

    def abort(self) -> None:
        """Close at once, so that the client sees an incomplete response."""
        self._transport.abort()
