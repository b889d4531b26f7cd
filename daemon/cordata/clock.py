"""The one place that reads a clock, beside the event loop: wall time and monotonic."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def now() -> datetime:
    """Wall time, aware, UTC."""
    return datetime.now(UTC)


def now_us() -> int:
    """Wall time in whole microseconds since the epoch: how the store keeps every `_at` column."""
    return time.time_ns() // 1000


def monotonic() -> float:
    """Seconds on a clock that never steps: for deadlines and beats."""
    return time.monotonic()


def to_us(at: datetime) -> int:
    """Microseconds since the epoch of an aware datetime. Raises: ValueError when it is naive."""
    if at.tzinfo is None:
        raise ValueError("a naive datetime has no place on the time line; give it a time zone")
    return (at - _EPOCH) // _MICROSECOND


def from_us(us: int) -> datetime:
    """The aware UTC datetime of microseconds since the epoch."""
    return _EPOCH + timedelta(microseconds=us)
