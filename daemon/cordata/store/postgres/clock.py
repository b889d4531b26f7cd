"""The fleet's clock: this process's estimate of the server's time."""

from __future__ import annotations

from cordata import clock

#: The server's time as SQL: microseconds since the epoch.
ASK = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
#: Limit of the drift of two clocks: 100 us in a second, more than real clocks have.
_DRIFT = 100e-6


class FleetClock:
    """The server's clock, computed from this host's monotonic one.

    The error of a measurement is at most half a round trip; the error of the estimate grows with
    its age. A later measurement replaces the estimate if it is more exact, or contradicts it.
    """

    def __init__(self) -> None:
        self._offset_us: int | None = None
        self._error_s = 0.0
        self._measured = 0.0

    def now_us(self) -> int:
        """Microseconds since the epoch; by this host's clock before the first measurement."""
        if self._offset_us is None:
            return clock.now_us()
        return int(clock.monotonic() * 1_000_000) + self._offset_us

    def measured(self, server_us: int, *, sent: float, received: float) -> None:
        """Add a measurement: the server's time was `server_us` between two monotonic times."""
        middle = (sent + received) / 2
        offset_us = server_us - int(middle * 1_000_000)
        error_s = (received - sent) / 2
        if self._offset_us is not None:
            old_error_s = self._error_s + _DRIFT * (received - self._measured)
            difference_s = abs(offset_us - self._offset_us) / 1_000_000
            if error_s > old_error_s and difference_s <= old_error_s + error_s:
                return
        self._offset_us, self._error_s, self._measured = offset_us, error_s, received
