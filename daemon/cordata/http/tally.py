"""What is not told request by request: 503s while the store is away, and a flood of refusals.

A refused request is a line of its own, for whoever looks for his; but anybody can have as many of
them as he sends, and the journal drops everybody's lines when there are too many.
"""

from __future__ import annotations

from collections import Counter

from cordata import events
from cordata.http.journal import is_refusal
from cordata.http.outage import AGAIN_S, Outage
from cordata.log import fields, logger

log = logger("cordata.http")

#: Lines at once, and per second in the long run.
LINES, LINES_PER_S = 100, 1.0


class Tally:
    """Of one server. Times are the loop's."""

    def __init__(self) -> None:
        self.outage = Outage()
        #: Requests refused before the application heard of them.
        self.unread = 0
        self._lines = float(LINES)
        self._at = 0.0
        #: By status, those without a line that were not told of yet, and since when there are any.
        self._counts: Counter[int] = Counter()
        self._since = 0.0

    def refuse_unread(self, status: int, now: float) -> bool:
        """Count one; as `is_told`."""
        self.unread += 1
        return self.is_told(status, now)

    def is_told(self, status: int, now: float) -> bool:
        """Whether a request with this status gets a line; else it is counted."""
        if not is_refusal(status):
            return True
        self._lines = min(LINES, self._lines + (now - self._at) * LINES_PER_S)
        self._at = now
        if self._lines >= 1:
            self._lines -= 1
            return True
        if not self._counts:
            self._since = now
        self._counts[status] += 1
        return False

    def look(self, now: float) -> None:
        """Say what is due."""
        self.outage.look(now)
        if self._counts and now - self._since >= AGAIN_S:
            self._tell(now)

    def end(self, now: float) -> None:
        """Nobody will look any more."""
        self.outage.end()
        if self._counts:
            self._tell(now)

    def _tell(self, now: float) -> None:
        count = self._counts.total()
        log.warning(
            "%d more requests in %.0f s were refused: %s",
            count,
            now - self._since,
            ", ".join(f"{self._counts[status]} x {status}" for status in sorted(self._counts)),
            extra=fields(events.REQUEST_REFUSED, count=count),
        )
        self._counts.clear()
