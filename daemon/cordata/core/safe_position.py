"""Up to which position every event is there for good: what a reader may call read.

Positions are handed out when an event is written, but seen when its transaction commits, which may
be in another order: a reader that saw 7 and moved on would miss a 5 that commits later. Each look
tells the highest position handed out so far and, asked *after* that, which transactions in flight
have written events at all. A position at or below that mark belongs to one of these, or to one
that has ended before. So once all of them have ended, whatever is below the mark and not to be
seen will never be: it was rolled back.

    look: mark 7, in flight {a, b}      safe 0
    look: mark 9, in flight {b, c}      safe 0      of the first mark b is left
    look: mark 9, in flight {c}         safe 7      the first mark has nobody left

Transactions that write no events are in nobody's way, however long they run. On a store where one
writes at a time nothing is ever in flight, and each look is safe at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

#: Marks that wait at once: more would only make the steps finer.
_MARKS = 8


class SafePosition:
    """The safe position as one reader knows it; it never goes back."""

    def __init__(self) -> None:
        self.safe = 0
        self._marks: deque[tuple[int, frozenset[str]]] = deque()

    @property
    def waiting_for(self) -> frozenset[str]:
        """The transactions that hold the safe position back."""
        return self._marks[0][1] if self._marks else frozenset()

    def look(self, position: int, in_flight: Collection[str]) -> int:
        """Take in what was seen. Returns the safe position, for reads that begin after this."""
        now = frozenset(in_flight)
        if not now:
            self._marks.clear()
            self.safe = max(self.safe, position)
            return self.safe
        self._marks = deque((mark, left & now) for mark, left in self._marks)
        while self._marks and not self._marks[0][1]:
            self.safe = max(self.safe, self._marks.popleft()[0])
        newest = self._marks[-1][0] if self._marks else self.safe
        if position > newest and len(self._marks) < _MARKS:
            self._marks.append((position, now))
        return self.safe
