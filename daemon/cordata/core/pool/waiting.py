"""All calls of one pool that wait for a child: those for any worker, those for one only, and those
for the workers that know the command, while not all of them do.
"""

from __future__ import annotations

from collections.abc import Callable

from cordata.core.pool.call import Call
from cordata.core.pool.fair import Fair
from cordata.core.pool.limits import PoolLimits
from cordata.core.pool.queue import Fifo


class Waiting:
    """The queue of a pool, bounded. Nothing in it is scanned, whatever its length."""

    __slots__ = (
        "_by_command",
        "_knows",
        "_lanes",
        "_limits",
        "_main",
        "_pinned",
        "_some",
        "ahead",
        "ahead_bytes",
        "bytes",
        "count",
        "longest_ever_s",
    )

    def __init__(
        self,
        limits: PoolLimits,
        knows: Callable[[str, str], bool] = lambda worker, command: True,
    ) -> None:
        """`knows`: whether this worker knows this command."""
        self._limits = limits
        self._knows = knows
        self._main: Fifo | Fair = Fair() if limits.fair else Fifo()
        #: Calls that may run at one worker only, by worker.
        self._lanes: dict[str, Fifo] = {}
        self._pinned: dict[Call, str] = {}
        #: Calls of commands that not all workers knew when they came, by command.
        self._by_command: dict[str, Fifo] = {}
        self._some: set[Call] = set()
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

    def add(self, call: Call, *, worker: str = "", command: str = "", back: bool = False) -> bool:
        """Stand in line, `worker`: for this one only, else `command`: for those that know this one.
        False: as many wait as may.

        `back`: it was admitted before, and gets the place it had.
        """
        if not back and not self.has_room(call):
            return False
        if worker:
            self._lanes.setdefault(worker, Fifo()).push(call, back=back)
            self._pinned[call] = worker
        elif command:
            self._by_command.setdefault(command, Fifo()).push(call, back=back)
            self._some.add(call)
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
        return self._next(worker).peek()

    def lend(self, call: Call, by: int = 1) -> None:
        """A call lies at a busy child from now on; `by` -1: no more."""
        self.ahead += by
        self.ahead_bytes += by * call.size_bytes

    def take(self, worker: str, now: float) -> Call | None:
        """The next call for a free child of this worker, out of the queue."""
        call = self._next(worker).pop()
        if call is not None:
            self._forget(call)
            self._left(call, now)
        return call

    def _next(self, worker: str) -> Fifo | Fair:
        """The queue whose head goes next to a child of this worker."""
        own = self._lanes.get(worker)
        if own is None and not self._by_command:
            return self._main
        lanes = [lane for name, lane in self._by_command.items() if self._knows(worker, name)]
        lanes += [] if own is None else [own]
        found, first = self._main, self._main.peek_key()
        for lane in lanes:
            key = lane.peek_key()
            if key is not None and (first is None or key < first):
                found, first = lane, key
        return found

    def drop(self, call: Call, now: float) -> None:
        """Leave the queue: timed out, cancelled, or its client is gone."""
        if call in self._pinned:
            self._lanes[self._pinned[call]].drop(call)
        elif call in self._some:
            self._by_command[call.command].drop(call)
        else:
            self._main.drop(call)
        self._forget(call)
        self._left(call, now)

    def take_all(self, now: float) -> list[Call]:
        """Everything, in no order: the pool stops."""
        found: list[Call] = []
        while (call := self._main.pop()) is not None:
            found.append(call)
        found += self._pinned
        found += self._some
        for call in found:
            self._left(call, now)
            call.queued = False
        for table in (self._pinned, self._lanes, self._some, self._by_command):
            table.clear()
        return found

    def longest_s(self, now: float) -> float:
        """How long the longest waiting one waits."""
        lanes = (self._main, *self._lanes.values(), *self._by_command.values())
        return max(lane.oldest(now) for lane in lanes)

    def _forget(self, call: Call) -> None:
        """It has left its queue."""
        worker = self._pinned.pop(call, "") if self._pinned else ""
        if worker and not self._lanes[worker]:
            del self._lanes[worker]
        elif call in self._some:
            self._some.remove(call)
            if not self._by_command[call.command]:
                del self._by_command[call.command]

    def _left(self, call: Call, now: float) -> None:
        self.count -= 1
        self.bytes -= call.size_bytes
        waited_s = now - call.enqueued
        if waited_s > self.longest_ever_s:
            self.longest_ever_s = waited_s
