"""Log throttling: a line at once, and the same line again only now and then while it lasts."""

from __future__ import annotations

from cordata import clock

#: Lines remembered; beyond it all are forgotten, so that some are logged early.
_LIMIT = 100


class LogThrottle:
    """Decides which lines are due. Lines differ by their text, or by a key that stands for it."""

    def __init__(self, *, again_s: float = 60.0) -> None:
        """`again_s`: often enough that whoever looks finds it near the end of the log."""
        self._again_s = again_s
        self._deadlines: dict[str, float] = {}

    def is_due(self, key: str, *, now: float | None = None) -> bool:
        """Whether to log it; counts as logged if so. `now`: monotonic seconds."""
        now = clock.monotonic() if now is None else now
        if now < self._deadlines.get(key, now):
            return False
        if len(self._deadlines) >= _LIMIT:
            self._deadlines.clear()
        self._deadlines[key] = now + self._again_s
        return True

    @property
    def has_logged(self) -> bool:
        """Whether anything was logged since the last `reset`: its end is worth a line, too."""
        return bool(self._deadlines)

    def reset(self) -> None:
        """It is over: the next line is due at once."""
        self._deadlines.clear()
