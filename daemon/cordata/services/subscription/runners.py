"""The partitions of this process: started and stopped as assigned."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from cordata.eventstore.partition import Claim, PartitionState
from cordata.services.handler_call import log_cut_off
from cordata.services.subscription.membership import Assignment
from cordata.services.subscription.partition import Dependencies, PartitionRunner
from cordata.store import Row
from cordata.subscription import Subscription

#: The partitions of a subscription queue at most this many pages of events together; one that has
#: its share of them is left out of the next read.
_PAGES = 4
_LEAST = 4


class PartitionRunners:
    """The runners of one process, at most one for each partition."""

    def __init__(self, subscriptions: Mapping[str, Subscription], shared: Dependencies) -> None:
        self._subscriptions = subscriptions
        self._shared = shared
        self._runners: dict[str, dict[int, PartitionRunner]] = {name: {} for name in subscriptions}
        self._tasks: dict[PartitionRunner, asyncio.Task[None]] = {}
        #: How many partitions each subscription has.
        self.partitions: Mapping[str, int] = {}

    def __len__(self) -> int:
        return sum(map(len, self._runners.values()))

    def all(self) -> list[PartitionRunner]:
        """Every runner, those that are ending too."""
        return [one for runners in self._runners.values() for one in runners.values()]

    def apply(self, assignment: Assignment, group: asyncio.TaskGroup) -> None:
        """Start partitions newly owned, drop lost ones, stop those above the fair share."""
        self.partitions = assignment.table.partitions
        for one in self.all():
            state = assignment.owned.get((one.subscription.name, one.number))
            if state is None or state.claim != one.claim:
                one.lose()
                self._tasks[one].cancel()  # its handler can commit nothing any more
            elif one.blocked and state.blocked_at is None and assignment.table.at > one.written_at:
                one.restart(state)
        for (name, number), state in assignment.owned.items():
            if number not in self._runners[name]:  # otherwise its last runner has to end first
                self._start(state, group)
        for name, count in assignment.excess.items():
            self._stop_some(name, count)

    def stop(self) -> None:
        """Stop all, each after its current event."""
        for one in self.all():
            one.stop()

    def cut_off(self) -> None:
        """Cancel running events at the end of the stop timeout; another process repeats them."""
        for name, runners in self._runners.items():
            if count := sum(one.busy for one in runners.values()):
                log_cut_off(name, count)
        for task in self._tasks.values():
            task.cancel()

    def ended(self) -> list[PartitionRunner]:
        """Runners whose task has ended; call `forget` when their partitions are released."""
        return [one for one, task in self._tasks.items() if task.done()]

    def forget(self, runners: Iterable[PartitionRunner]) -> None:
        """Remove runners whose partitions this process no longer owns."""
        for one in runners:
            del self._tasks[one]
            del self._runners[one.subscription.name][one.number]

    def unstored(self, *, quiet: bool) -> list[PartitionRunner]:
        """Runners whose position is to be stored; with `quiet` also those that handled nothing."""
        return [
            one
            for one in self.all()
            if not one.lost and (one.is_unstored or (quiet and one.position > one.stored))
        ]

    def partitions_to_read(self, name: str, page: int) -> dict[int, int]:
        """Partition -> the position up to which it was read, of those with room in their queue.

        Empty while each of them still has events.
        """
        runners = self._runners[name]
        full = max(_LEAST, _PAGES * page // max(1, len(runners)))
        open_ = [one for one in runners.values() if not one.is_waiting and len(one.queue) < full]
        if all(one.queue for one in open_):
            return {}
        return {one.number: one.read_to for one in open_}

    def feed(
        self, name: str, rows: Sequence[Row], partitions: Iterable[int], *, after: int, end: int
    ) -> None:
        """Queue the rows that were read for these partitions, all of those in (after, end]."""
        runners = self._runners[name]
        open_ = {number for number in partitions if self._is_at(name, number, after)}
        for row in rows:
            if row["partition"] in open_:
                runners[row["partition"]].push(row)
        for number in open_:
            runners[number].read_to = end

    def _is_at(self, name: str, number: int, position: int) -> bool:
        """Whether the runner is still at the position at which the read began."""
        one = self._runners[name].get(number)
        return one is not None and one.read_to == position and not one.blocked

    def _start(self, state: PartitionState, group: asyncio.TaskGroup) -> None:
        one = PartitionRunner(self._subscriptions[state.subscription], state, self._shared)
        self._runners[state.subscription][state.partition] = one
        task = self._tasks[one] = group.create_task(one.run())
        task.add_done_callback(lambda _: self._shared.on_event_end(one))

    def _stop_some(self, name: str, count: int) -> None:
        """Stop `count` runners of a subscription, idle ones first; stopping ones count."""
        runners = self._runners[name].values()
        count -= sum(one.stopping for one in runners)
        going = [one for one in runners if not one.stopping]
        for one in sorted(going, key=lambda one: (len(one.queue), -one.number))[: max(0, count)]:
            one.stop()


def positions(runners: Iterable[PartitionRunner]) -> list[tuple[Claim, int]]:
    """The claim and the position of each."""
    return [(one.claim, one.position) for one in runners]
