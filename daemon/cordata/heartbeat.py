"""The heartbeat of a service: the watchdog is fed only while every one is fresh."""

from __future__ import annotations

from cordata import clock


class Heartbeat:
    """A service touches its heartbeat at least every `max_age_s` while it can make progress.

    The default leaves a service that polls every 5 s room for one slow pass.
    """

    __slots__ = ("_touched_at", "max_age_s")

    def __init__(self, max_age_s: float = 30.0) -> None:
        self.max_age_s = max_age_s
        self._touched_at = clock.monotonic()

    def touch(self) -> None:
        """The service is alive now."""
        self._touched_at = clock.monotonic()

    def fresh(self, now: float | None = None) -> bool:
        """Whether the last touch is young enough at `now` (monotonic seconds)."""
        return self.age_s(now) <= self.max_age_s

    def age_s(self, now: float | None = None) -> float:
        """Seconds since the last touch."""
        return (clock.monotonic() if now is None else now) - self._touched_at
