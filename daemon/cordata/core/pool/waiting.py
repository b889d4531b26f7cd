"""All calls of one pool that wait for a child: those for any worker, and those for one only."""

from __future__ import annotations

from cordata.core.pool.call import Call
from cordata.core.pool.fair import Fair
from cordata.core.pool.limits import PoolLimits
from cordata.core.pool.queue import Fifo


class Waiting:
    """The queue of a pool, bounded. Nothing in it is scanned, whatever its length."""

    __slots__ = (
        "_lanes",
        "_limits",
        "_main",
        "_pinned",
        "ahead",
        "ahead_bytes",
        "bytes",
        "count",
        "longest_ever_s",
    )

    def __init__(self, limits: PoolLimits) -> None:
        self._limits = limits
        self._main: Fifo | Fair = Fair() if limits.fair else Fifo()
        #: Calls that may run at one worker only, by worker.
        self._lanes: dict[str, Fifo] = {}
        self._pinned: dict[Call, str] = {}
        self.count = 0
        self.bytes = 0
        #: Calls that lie at a busy child: they wait as well, and count in the bounds.
        self.ahead = 0
        self.ahead_bytes = 0
        #: The longest that any call waited which has left.
        self.longest_ever_s = 0.0

    def __len__(self) -> int:
        return self.count

    def limit(self, limits: PoolLimits) -> None:
        """Other bounds, from a reload; who waits stays. Taking turns begins with a restart only."""
        self._limits = limits

    def add(self, call: Call, *, worker: str = "", back: bool = False) -> bool:
        """Stand in line, `worker`: for this one only. False: as many wait as may.

        `back`: it was admitted before, and gets the place it had.
        """
        if not back and not self.has_room(call):
            return False
        if worker:
            self._lanes.setdefault(worker, Fifo()).push(call, back=back)
            self._pinned[call] = worker
        else:
            self._main.push(call, back=back)
        self.count += 1
        self.bytes += call.size_bytes
        return True

    def has_room(self, call: Call) -> bool:
        """Whether it may wait, in line or at a busy child."""
        limits = self._limits
        count = self.count + self.ahead
        size = self.bytes + self.ahead_bytes + call.size_bytes
        if count >= limits.max_waiting or size > limits.max_waiting_bytes:
            return False
        scarce = 10 * count >= 9 * limits.max_waiting or 10 * size > 9 * limits.max_waiting_bytes
        return not (scarce and self._has_enough(call.source))

    def _has_enough(self, source: int) -> bool:
        """Where clients take turns, the last tenth of the places is for those who have few: else
        one who takes them all would have everybody else refused.
        """
        own = self._main.of(source) if isinstance(self._main, Fair) else None
        if own is None:
            return False
        limits = self._limits
        return 100 * own.count >= limits.max_waiting or 100 * own.bytes >= limits.max_waiting_bytes

    def pinned_to(self, call: Call) -> str:
        """The only worker that this one waits for; "": any."""
        return self._pinned.get(call, "")

    def head(self, worker: str) -> Call | None:
        """Whom `take` would give."""
        lane, call = self._lanes.get(worker), self._main.peek()
        if lane is None:
            return call
        own = lane.peek()
        return own if own is not None and (call is None or own.key < call.key) else call

    def lend(self, call: Call, by: int = 1) -> None:
        """A call lies at a busy child from now on; `by` -1: no more."""
        self.ahead += by
        self.ahead_bytes += by * call.size_bytes

    def take(self, worker: str, now: float) -> Call | None:
        """The next call for a free child of this worker, out of the queue."""
        lane = self._lanes.get(worker)
        if lane is None:
            call = self._main.pop()
        else:
            own, any_ = lane.peek_key(), self._main.peek_key()
            if own is not None and (any_ is None or own < any_):
                call = lane.pop()
                self._unpin(call)
            else:
                call = self._main.pop()
        if call is not None:
            self._left(call, now)
        return call

    def drop(self, call: Call, now: float) -> None:
        """Leave the queue: timed out, cancelled, or its client is gone."""
        worker = self._pinned.get(call)
        if worker is None:
            self._main.drop(call)
        else:
            self._lanes[worker].drop(call)
            self._unpin(call)
        self._left(call, now)

    def take_all(self, now: float) -> list[Call]:
        """Everything, in no order: the pool stops."""
        found: list[Call] = []
        while (call := self._main.pop()) is not None:
            found.append(call)
        found += self._pinned
        for call in found:
            self._left(call, now)
            call.queued = False
        self._pinned.clear()
        self._lanes.clear()
        return found

    def longest_s(self, now: float) -> float:
        """How long the longest waiting one waits."""
        return max((lane.oldest(now) for lane in (self._main, *self._lanes.values())), default=0.0)

    def _unpin(self, call: Call | None) -> None:
        if call is not None:
            worker = self._pinned.pop(call)
            if not self._lanes[worker]:
                del self._lanes[worker]

    def _left(self, call: Call, now: float) -> None:
        self.count -= 1
        self.bytes -= call.size_bytes
        waited_s = now - call.enqueued
        if waited_s > self.longest_ever_s:
            self.longest_ever_s = waited_s
