"""First in, first out, with priorities that cannot starve anybody.

The head with the smallest key goes first, and a key is the time of arrival less one second per
priority: the highest priority is ahead of at most nine seconds of others.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush

from cordata.core.pool.call import Call

#: A call's place in line: its key, then its serial.
Key = tuple[float, int]


class Fifo:
    """Waiting calls in order. All costs are O(1), but for those that come back: O(log of them)."""

    __slots__ = ("_back", "_lanes", "_left", "bytes", "count")

    def __init__(self) -> None:
        #: One per priority that was ever used. Keys grow within each.
        self._lanes: dict[int, deque[Call]] = {}
        #: Calls that were with a child before: their keys are older than a lane's tail.
        self._back: list[tuple[Key, Call]] = []
        #: Dropped calls that still lie in a lane.
        self._left = 0
        self.count = 0
        self.bytes = 0

    def __len__(self) -> int:
        return self.count

    def push(self, call: Call, *, back: bool = False) -> None:
        """Stand in line; `back`: at the place that it had before."""
        call.queued = True
        self.count += 1
        self.bytes += call.size_bytes
        if back:
            heappush(self._back, (call.key, call))
            return
        lane = self._lanes.get(call.priority)
        if lane is None:
            lane = self._lanes[call.priority] = deque()
        lane.append(call)

    def peek_key(self) -> Key | None:
        """The key of who is next."""
        found = self._head()
        return found[0] if found else None

    def peek(self) -> Call | None:
        """Who is next; it stays."""
        found = self._head()
        return found[1] if found else None

    def pop(self) -> Call | None:
        """Who is next, out of the queue; None: nobody waits."""
        found = self._head()
        if found is None:
            return None
        call, lane = found[1], found[2]
        if lane is None:
            heappop(self._back)
        else:
            lane.popleft()
        self._gone(call)
        return call

    def drop(self, call: Call) -> None:
        """Leave the queue from wherever it stands. It must be queued here."""
        self._gone(call)
        self._left += 1
        if self._left > self.count + 64:
            self._sweep()

    def oldest(self, now: float) -> float:
        """Seconds that the longest waiting one waits; 0.0: nobody waits."""
        self._head()  # no dropped ones at the heads
        times = [lane[0].enqueued for lane in self._lanes.values() if lane]
        times += [call.enqueued for _, call in self._back if call.queued]
        return now - min(times) if times else 0.0

    def _gone(self, call: Call) -> None:
        call.queued = False
        self.count -= 1
        self.bytes -= call.size_bytes

    def _head(self) -> tuple[Key, Call, deque[Call] | None] | None:
        """Who is next, with its lane (None: `_back`); removes the dropped ones before it."""
        best: tuple[Key, Call, deque[Call] | None] | None = None
        for lane in self._lanes.values():
            while lane and not lane[0].queued:
                lane.popleft()
                self._left -= 1
            if lane and (best is None or lane[0].key < best[0]):
                best = (lane[0].key, lane[0], lane)
        while self._back and not self._back[0][1].queued:
            heappop(self._back)
            self._left -= 1
        if self._back and (best is None or self._back[0][0] < best[0]):
            best = (*self._back[0], None)
        return best

    def _sweep(self) -> None:
        """Dropped ones are more than half: build the lanes anew without them."""
        for priority, lane in self._lanes.items():
            self._lanes[priority] = deque(call for call in lane if call.queued)
        self._back = sorted(entry for entry in self._back if entry[1].queued)
        self._left = 0
