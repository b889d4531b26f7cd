"""The lanes of this process: begun, brought in line with the table, ended."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from cordata.eventstore import Claim, Standing
from cordata.services.calling import say_cut_off
from cordata.services.subscription.lane import Lane
from cordata.services.subscription.membership import Shares
from cordata.services.subscription.surroundings import Surroundings
from cordata.store import Row
from cordata.subscription import Subscription

#: How many pages' share of events one lane may hold before it is left out of the next read.
_PAGES = 4
_LEAST = 4


class Hands:
    """All partitions in the hands of this process. One lane for a partition at most."""

    def __init__(self, subscriptions: Mapping[str, Subscription], around: Surroundings) -> None:
        self._subscriptions = subscriptions
        self._around = around
        self._lanes: dict[str, dict[int, Lane]] = {name: {} for name in subscriptions}
        self._tasks: dict[Lane, asyncio.Task[None]] = {}
        #: Events that lanes handled which are forgotten now.
        self._handled_count = 0
        #: How many partitions each subscription has.
        self.partitions: Mapping[str, int] = {}

    def __len__(self) -> int:
        return sum(map(len, self._lanes.values()))

    @property
    def handled_count(self) -> int:
        """Events that this process has handled."""
        return self._handled_count + sum(lane.handled_count for lane in self.all())

    def all(self) -> list[Lane]:
        """Every lane, those that are ending too."""
        return [lane for lanes in self._lanes.values() for lane in lanes.values()]

    def of(self, name: str) -> Mapping[int, Lane]:
        """Partition -> lane, of one subscription."""
        return self._lanes[name]

    def bring_in_line(self, shares: Shares, group: asyncio.TaskGroup) -> None:
        """Begin what is ours now, drop what is not any more, stop what we have too much of."""
        self.partitions = shares.partitions
        for lane in self.all():
            standing = shares.owned.get((lane.subscription.name, lane.number))
            if standing is None or standing.claim != lane.claim:
                lane.lose()
                self._tasks[lane].cancel()  # what its handler does can no longer be committed
            elif lane.blocked and standing.blocked_at is None and shares.at > lane.written_at:
                lane.take(standing)
        for (name, number), standing in shares.owned.items():
            if number not in self._lanes[name]:  # else its last lane has to end first
                self._begin(standing, group)
        for name, count in shares.excess.items():
            self._stop_some(name, count)

    def stop(self) -> None:
        """Stop all, each after its event in hand."""
        for lane in self.all():
            lane.stop()

    def cut_off(self) -> None:
        """The stop does not wait any longer: events in hand begin again in another process."""
        for name, lanes in self._lanes.items():
            if count := sum(lane.busy for lane in lanes.values()):
                say_cut_off(name, count)
        for task in self._tasks.values():
            task.cancel()

    def ended(self) -> list[Lane]:
        """Those whose task has ended; `forget` them when their partitions are given back."""
        return [lane for lane, task in self._tasks.items() if task.done()]

    def forget(self, lanes: Iterable[Lane]) -> None:
        """They are no longer ours."""
        for lane in lanes:
            self._handled_count += lane.handled_count
            del self._tasks[lane]
            del self._lanes[lane.subscription.name][lane.number]

    def unstored(self, *, quiet: bool) -> list[Lane]:
        """Lanes whose position is to be stored; with `quiet` also those that only read on."""
        return [
            lane
            for lane in self.all()
            if not lane.lost and (lane.unstored or (quiet and lane.position > lane.stored))
        ]

    def hungry(self, name: str, batch: int) -> dict[int, int]:
        """Partition -> where it was read to, of those that are to get more; none while every one
        of them has some.
        """
        lanes = self._lanes[name]
        full = max(_LEAST, _PAGES * batch // max(1, len(lanes)))
        open_ = [one for one in lanes.values() if not one.waits and len(one.queue) < full]
        if all(lane.queue for lane in open_):
            return {}
        return {lane.number: lane.read_to for lane in open_}

    def feed(
        self, name: str, rows: Sequence[Row], partitions: Iterable[int], *, after: int, end: int
    ) -> None:
        """Hand out what was read of these partitions, which is all from `after` to `end`."""
        lanes = self._lanes[name]
        open_ = {number for number in partitions if self._is_at(name, number, after)}
        for row in rows:
            if row["partition"] in open_:
                lanes[row["partition"]].push(row)
        for number in open_:
            lanes[number].read_to = end

    def _is_at(self, name: str, number: int, position: int) -> bool:
        """Whether the lane is still where it was when the read began."""
        lane = self._lanes[name].get(number)
        return lane is not None and lane.read_to == position and not lane.blocked

    def _begin(self, standing: Standing, group: asyncio.TaskGroup) -> None:
        lane = Lane(self._subscriptions[standing.subscription], standing, self._around)
        self._lanes[standing.subscription][standing.partition] = lane
        task = self._tasks[lane] = group.create_task(lane.run())
        task.add_done_callback(lambda _: self._around.ended(lane))

    def _stop_some(self, name: str, count: int) -> None:
        """`count` of a subscription are to end, those included that are ending; idle ones first."""
        lanes = self._lanes[name].values()
        count -= sum(lane.stopping for lane in lanes)
        going = [lane for lane in lanes if not lane.stopping]
        for lane in sorted(going, key=lambda one: (len(one.queue), -one.number))[: max(0, count)]:
            lane.stop()


def places(lanes: Iterable[Lane]) -> list[tuple[Claim, int]]:
    """The claim and the position of each."""
    return [(lane.claim, lane.position) for lane in lanes]
