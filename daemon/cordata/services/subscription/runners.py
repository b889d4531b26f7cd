"""The partitions of this process: started and stopped as assigned, fed with pages of events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence

from cordata.core.partition import cohorts
from cordata.eventstore import EventLog
from cordata.eventstore.partition import Claim, PartitionState
from cordata.services.handler_call import say_cut_off
from cordata.services.subscription.membership import Assignment
from cordata.services.subscription.partition import Dependencies, PartitionRunner
from cordata.store import Row, Store, Tx
from cordata.subscription import Subscription

#: Events of one read, unless the subscription says otherwise.
PAGE = 256
#: How many pages' share of events one partition may hold before it is left out of the next read.
_PAGES = 4
_LEAST = 4
#: First and longest pause while transactions in flight hold events back.
_HELD_S, _HELD_LONGEST_S = 0.005, 0.25


class PartitionRunners:
    """The runners of one process, one for a partition at most."""

    def __init__(self, subscriptions: Mapping[str, Subscription], shared: Dependencies) -> None:
        self._subscriptions = subscriptions
        self._shared = shared
        self._runners: dict[str, dict[int, PartitionRunner]] = {name: {} for name in subscriptions}
        self._tasks: dict[PartitionRunner, asyncio.Task[None]] = {}
        #: Events that were handled by runners which have ended.
        self._handled_count = 0
        #: How many partitions each subscription has.
        self.partitions: Mapping[str, int] = {}

    def __len__(self) -> int:
        return sum(map(len, self._runners.values()))

    @property
    def handled_count(self) -> int:
        """Events that this process has handled."""
        return self._handled_count + sum(one.handled_count for one in self.all())

    def all(self) -> list[PartitionRunner]:
        """Every runner, those that are ending too."""
        return [one for runners in self._runners.values() for one in runners.values()]

    def apply(self, assignment: Assignment, group: asyncio.TaskGroup) -> None:
        """Start what is ours now, drop what is not any more, stop what we have too much of."""
        self.partitions = assignment.partitions
        for one in self.all():
            state = assignment.owned.get((one.subscription.name, one.number))
            if state is None or state.claim != one.claim:
                one.lose()
                self._tasks[one].cancel()  # what its handler does can no longer be committed
            elif one.blocked and state.blocked_at is None and assignment.at > one.written_at:
                one.restart(state)
        for (name, number), state in assignment.owned.items():
            if number not in self._runners[name]:  # else its last runner has to end first
                self._start(state, group)
        for name, count in assignment.excess.items():
            self._stop_some(name, count)

    def stop(self) -> None:
        """Stop all, each after its current event."""
        for one in self.all():
            one.stop()

    def cut_off(self) -> None:
        """The stop does not wait any longer: running events begin again in another process."""
        for name, runners in self._runners.items():
            if count := sum(one.busy for one in runners.values()):
                say_cut_off(name, count)
        for task in self._tasks.values():
            task.cancel()

    def ended(self) -> list[PartitionRunner]:
        """Those whose task has ended; `forget` them when their partitions are given back."""
        return [one for one, task in self._tasks.items() if task.done()]

    def forget(self, runners: Iterable[PartitionRunner]) -> None:
        """Their partitions are no longer ours."""
        for one in runners:
            self._handled_count += one.handled_count
            del self._tasks[one]
            del self._runners[one.subscription.name][one.number]

    def unstored(self, *, quiet: bool) -> list[PartitionRunner]:
        """Runners whose position is to be stored; with `quiet` also those that only read on."""
        return [
            one
            for one in self.all()
            if not one.lost and (one.is_unstored or (quiet and one.position > one.stored))
        ]

    def hungry(self, name: str, page: int) -> dict[int, int]:
        """Partition -> where it was read to, of those that are to get more; none while every one
        of them has some.
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
        """Hand out what was read of these partitions, which is all from `after` to `end`."""
        runners = self._runners[name]
        open_ = {number for number in partitions if self._is_at(name, number, after)}
        for row in rows:
            if row["partition"] in open_:
                runners[row["partition"]].push(row)
        for number in open_:
            runners[number].read_to = end

    def _is_at(self, name: str, number: int, position: int) -> bool:
        """Whether the runner is still where it was when the read began."""
        one = self._runners[name].get(number)
        return one is not None and one.read_to == position and not one.blocked

    def _start(self, state: PartitionState, group: asyncio.TaskGroup) -> None:
        one = PartitionRunner(self._subscriptions[state.subscription], state, self._shared)
        self._runners[state.subscription][state.partition] = one
        task = self._tasks[one] = group.create_task(one.run())
        task.add_done_callback(lambda _: self._shared.on_event_end(one))

    def _stop_some(self, name: str, count: int) -> None:
        """`count` of a subscription are to end, those included that are ending; idle ones first."""
        runners = self._runners[name].values()
        count -= sum(one.stopping for one in runners)
        going = [one for one in runners if not one.stopping]
        for one in sorted(going, key=lambda one: (len(one.queue), -one.number))[: max(0, count)]:
            one.stop()


def positions(runners: Iterable[PartitionRunner]) -> list[tuple[Claim, int]]:
    """The claim and the position of each."""
    return [(one.claim, one.position) for one in runners]


class EventReader:
    """Reads pages of events below the safe position: one query for all partitions at one place."""

    def __init__(
        self,
        store: Store,
        log: EventLog,
        subscriptions: Mapping[str, Subscription],
        runners: PartitionRunners,
    ) -> None:
        self._store = store
        self._log = log
        self._subscriptions = subscriptions
        self._runners = runners
        self._safe = 0
        self._held_s = _HELD_S

    async def run_once(self) -> None:
        """One page for each subscription, unless every partition of it has enough."""
        if not len(self._runners):
            return
        self._safe = await self._log.look()
        for name, subscription in self._subscriptions.items():
            page = subscription.batch or PAGE
            for after, until, numbers in cohorts(self._runners.hungry(name, page), self._safe):
                rows = await read_page(
                    self._store,
                    subscription,
                    self._runners.partitions[name],
                    numbers,
                    after=after,
                    until=until,
                    limit=page,
                )
                end = rows[-1]["position"] if len(rows) == page else until
                self._runners.feed(name, rows, numbers, after=after, end=end)

    @property
    def is_behind(self) -> bool:
        """Whether there is more to read at once, now or when a partition has room."""
        return any(not one.is_waiting and one.read_to < self._safe for one in self._runners.all())

    def has_more_for(self, runner: PartitionRunner) -> bool:
        """Whether a runner has run dry though there are events that it may have."""
        return not runner.queue and runner.read_to < self._safe

    def sleep_s(self, longest_s: float) -> float:
        """How long to wait with the next read: not at all while a partition has nothing to do."""
        for name, subscription in self._subscriptions.items():
            hungry = self._runners.hungry(name, subscription.batch or PAGE)
            if any(read_to < self._safe for read_to in hungry.values()):
                return 0.0
        if not self._log.held_back_by:
            self._held_s = _HELD_S
            return longest_s
        pause_s, self._held_s = self._held_s, min(self._held_s * 2, _HELD_LONGEST_S)
        return min(longest_s, pause_s)


async def read_page(
    store: Store,
    subscription: Subscription,
    partitions: int,
    wanted: Sequence[int],
    *,
    after: int,
    until: int,
    limit: int,
) -> list[Row]:
    """The first `limit` events of the wanted ones of so many partitions, in (after, until]."""
    numbers = json.dumps(list(wanted))

    async def unit(tx: Tx) -> list[Row]:
        return await tx.fetch_all(
            "event.of_partitions",
            category=subscription.category,
            partitions=partitions,
            wanted=numbers,
            after=after,
            until=until,
            limit=limit,
        )

    return await store.read(unit)
