"""Heartbeat: when a service last made progress. The watchdog is notified while all are fresh."""

from __future__ import annotations

from cordata import clock


class Heartbeat:
    """The time of a service's last activity; stale after `max_age_s` seconds without one.

    The default allows one slow pass of a service that polls every 5 s.
    """

    __slots__ = ("_touched_at", "max_age_s")

    def __init__(self, max_age_s: float = 30.0) -> None:
        self.max_age_s = max_age_s
        self._touched_at = clock.monotonic()

    def touch(self) -> None:
        """Record that the service is active now."""
        self._touched_at = clock.monotonic()

    def fresh(self, now: float | None = None) -> bool:
        """Whether the last touch is at most `max_age_s` before `now` (monotonic seconds)."""
        return self.age_s(now) <= self.max_age_s

    def age_s(self, now: float | None = None) -> float:
        """Seconds since the last touch."""
        return (clock.monotonic() if now is None else now) - self._touched_at
