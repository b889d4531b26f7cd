"""How fast long work goes, and when it will be over."""

from __future__ import annotations

from collections import deque

#: The rate is that of so many seconds: it follows what changes, and does not jump.
WINDOW_S = 10.0


class Progress:
    """Told now and then how much is left; more may come meanwhile."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()
        self._most = 0

    def update(self, now: float, left: int) -> None:
        """At `now` (monotonic seconds) so much is left."""
        self._samples.append((now, left))
        while len(self._samples) > 2 and self._samples[1][0] <= now - WINDOW_S:
            self._samples.popleft()
        self._most = max(self._most, left)

    @property
    def rate(self) -> float:
        """How much less is left per second; 0.0 when it does not get less."""
        if len(self._samples) < 2:
            return 0.0
        (began, most), (now, left) = self._samples[0], self._samples[-1]
        return max(0.0, (most - left) / (now - began)) if now > began else 0.0

    @property
    def share(self) -> float:
        """How much of the most that there ever was is done, 0 to 1."""
        left = self._samples[-1][1] if self._samples else 0
        return 1.0 - left / self._most if self._most else 1.0

    @property
    def eta_s(self) -> float | None:
        """Seconds until nothing is left, as it goes now; None when nobody can say."""
        left = self._samples[-1][1] if self._samples else 0
        if not left:
            return 0.0
        return left / self.rate if self.rate > 0.0 else None


def readable_s(seconds: float) -> str:
    """`42 s`, `3 min`, `2 h 5 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
