"""What is logged of a wait: its begin, each new reason, and the same again now and then."""

from __future__ import annotations

from cordata import clock
from cordata.errors import CordataError

#: The same is said again this often, so that whoever looks finds it near the end of the log.
AGAIN_S = 60.0


class Saying:
    """Which reason was said last, and when."""

    def __init__(self) -> None:
        self.last = ""
        self._at = float("-inf")

    def due(self, reason: str, *, now: float | None = None) -> bool:
        """Whether to say it; counts as said if so."""
        now = clock.monotonic() if now is None else now
        if reason == self.last and now - self._at < AGAIN_S:
            return False
        self.last, self._at = reason, now
        return True

    def over(self) -> None:
        """Nothing is wrong any more."""
        self.last = ""


def with_hint(error: CordataError) -> str:
    """The error, and in parentheses what to do."""
    return f"{error} ({error.hint})" if error.hint else str(error)
