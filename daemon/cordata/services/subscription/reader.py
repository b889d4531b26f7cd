"""Reads pages of events for the partitions of this process."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from cordata.eventstore import EventLog
from cordata.services.subscription.partition import PartitionRunner
from cordata.services.subscription.runners import PartitionRunners
from cordata.store import Row, Store
from cordata.subscription import Subscription

#: Events of one read, unless the subscription says otherwise.
PAGE = 256
#: First and longest pause while transactions in flight hold events back.
_BLOCKED_S, _BLOCKED_LONGEST_S = 0.005, 0.25


class EventReader:
    """Reads pages of events up to the safe position: one query for partitions at one position."""

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
        self._blocked_pause_s = _BLOCKED_S

    async def run_once(self) -> None:
        """Read a page for each subscription that has a partition with room for more."""
        if not len(self._runners):
            return
        self._safe = await self._log.safe_position()
        for name, subscription in self._subscriptions.items():
            page = subscription.batch or PAGE
            for after, until, numbers in cohorts(
                self._runners.partitions_to_read(name, page), self._safe
            ):
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
        """Whether there is more to read, now or when a partition has room."""
        return any(not one.is_waiting and one.read_to < self._safe for one in self._runners.all())

    def has_more_for(self, runner: PartitionRunner) -> bool:
        """Whether a runner's queue is empty though there may be events for it."""
        return not runner.queue and runner.read_to < self._safe

    def sleep_s(self, longest_s: float) -> float:
        """Seconds until the next read: 0 while a partition has nothing to do."""
        for name, subscription in self._subscriptions.items():
            to_read = self._runners.partitions_to_read(name, subscription.batch or PAGE)
            if any(read_to < self._safe for read_to in to_read.values()):
                return 0.0
        if not self._log.held_back_by:
            self._blocked_pause_s = _BLOCKED_S
            return longest_s
        pause_s, self._blocked_pause_s = (
            self._blocked_pause_s,
            min(self._blocked_pause_s * 2, _BLOCKED_LONGEST_S),
        )
        return min(longest_s, pause_s)


def cohorts(read_to: Mapping[int, int], safe: int) -> list[tuple[int, int, Sequence[int]]]:
    """Which partitions share a query: (after, until, partitions), the highest position first.

    `read_to`: partition -> the position up to which it was read. Partitions at one position are a
    cohort. Each is read up to the position of the next one, so that both are one cohort then.
    """
    by_position: dict[int, list[int]] = {}
    for partition, position in read_to.items():
        by_position.setdefault(position, []).append(partition)
    found: list[tuple[int, int, Sequence[int]]] = []
    until = safe
    for position in sorted(by_position, reverse=True):
        if position < until:
            found.append((position, until, sorted(by_position[position])))
        until = min(until, position)
    return found


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
    """The first `limit` events of the `wanted` partitions, in (after, until].

    `partitions`: how many the subscription has.
    """
    numbers = json.dumps(list(wanted))

    return await store.read(
        lambda tx: tx.fetch_all(
            "event.of_partitions",
            category=subscription.category,
            partitions=partitions,
            wanted=numbers,
            after=after,
            until=until,
            limit=limit,
        )
    )
