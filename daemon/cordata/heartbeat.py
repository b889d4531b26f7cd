"""Heartbeat: when a service last made progress. The watchdog is notified while all are fresh."""

from __future__ import annotations

from cordata import clock


class Heartbeat:
    """The time of a service's last activity; stale after `max_age_s` seconds without one.

    The default allows one slow pass of a service that polls every 5 s.
    """

    __slots__ = ("max_age_s", "touched_at")

    def __init__(self, max_age_s: float = 30.0) -> None:
        self.max_age_s = max_age_s
        self.touched_at = clock.monotonic()

    def touch(self) -> None:
        """Record that the service is active now."""
        self.touched_at = clock.monotonic()

    def fresh(self, now: float) -> bool:
        """Whether the last touch is at most `max_age_s` before `now` (monotonic seconds)."""
        return now - self.touched_at <= self.max_age_s
