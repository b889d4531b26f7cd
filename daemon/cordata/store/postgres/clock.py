"""The fleet's clock: the server's time as this process estimates it."""

from __future__ import annotations

from cordata import clock

#: What the server is asked for: microseconds since the epoch.
ASK = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
#: How far two clocks may drift apart: 100 us in a second is more than any real one does.
_DRIFT = 100e-6


class FleetClock:
    """The server's clock, read off this host's monotonic one.

    Half a round trip is how wrong a measurement can be; the estimate grows vaguer as it ages, so
    a later measurement replaces it once that is the better one, or contradicts it.
    """

    def __init__(self) -> None:
        self._offset_us: int | None = None
        self._error_s = 0.0
        self._measured = 0.0

    def now_us(self) -> int:
        """Microseconds since the epoch; by this host's clock until the server was asked."""
        if self._offset_us is None:
            return clock.now_us()
        return int(clock.monotonic() * 1_000_000) + self._offset_us

    def measured(self, server_us: int, *, sent: float, received: float) -> None:
        """The server said `server_us` at some moment between two monotonic times."""
        middle = (sent + received) / 2
        offset_us = server_us - int(middle * 1_000_000)
        error_s = (received - sent) / 2
        if self._offset_us is not None:
            vague_s = self._error_s + _DRIFT * (received - self._measured)
            apart_s = abs(offset_us - self._offset_us) / 1_000_000
            if error_s > vague_s and apart_s <= vague_s + error_s:
                return
        self._offset_us, self._error_s, self._measured = offset_us, error_s, received
