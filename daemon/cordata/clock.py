"""Wall time and monotonic time. Apart from the event loop, only this module reads a clock."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def now() -> datetime:
    """The wall time, as an aware datetime in UTC."""
    return datetime.now(UTC)


def now_us() -> int:
    """The wall time in microseconds since the epoch, the unit of the store's `_at` columns."""
    return time.time_ns() // 1000


def monotonic() -> float:
    """Seconds on a clock that never steps: for deadlines and heartbeats."""
    return time.monotonic()


def since_boot() -> float:
    """Seconds since the boot, those asleep included: the clock of the start times in /proc."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def to_us(at: datetime) -> int:
    """Microseconds since the epoch of an aware datetime. Raises: ValueError when it is naive."""
    if at.tzinfo is None:
        raise ValueError("the datetime has no time zone; add one")
    return (at - _EPOCH) // _MICROSECOND


def from_us(us: int) -> datetime:
    """The aware UTC datetime of microseconds since the epoch."""
    return _EPOCH + timedelta(microseconds=us)
