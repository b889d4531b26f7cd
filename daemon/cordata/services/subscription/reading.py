"""What the lanes get: pages of events below the safe position, one query for all at one place."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from cordata.core.partition import cohorts
from cordata.eventstore import EventLog
from cordata.services.subscription.hands import Hands
from cordata.services.subscription.lane import Lane
from cordata.store import Row, Store, Tx
from cordata.subscription import Subscription

#: Events of one read, unless the subscription says otherwise.
BATCH = 256
#: First and longest pause while transactions in flight hold events back.
_HELD_S, _HELD_LONGEST_S = 0.005, 0.25


class Reading:
    """Reads for all lanes of one process."""

    def __init__(
        self, store: Store, log: EventLog, subscriptions: Mapping[str, Subscription], hands: Hands
    ) -> None:
        self._store = store
        self._log = log
        self._subscriptions = subscriptions
        self._hands = hands
        self._safe = 0
        self._held_s = _HELD_S

    async def run_once(self) -> None:
        """One page for each subscription, unless every lane of it has enough."""
        if not len(self._hands):
            return
        self._safe = await self._log.look()
        for name, subscription in self._subscriptions.items():
            batch = subscription.batch or BATCH
            for after, until, numbers in cohorts(self._hands.hungry(name, batch), self._safe):
                rows = await self._page(subscription, after, until, numbers, batch)
                end = rows[-1]["position"] if len(rows) == batch else until
                self._hands.feed(name, rows, numbers, after=after, end=end)

    @property
    def behind(self) -> bool:
        """Whether there is more to read at once, now or when a lane has room."""
        return any(not lane.waits and lane.read_to < self._safe for lane in self._hands.all())

    def wanted_by(self, lane: Lane) -> bool:
        """Whether a lane has run dry though there are events that it may have."""
        return not lane.queue and lane.read_to < self._safe

    def sleep_s(self, longest_s: float) -> float:
        """How long to wait with the next read: not at all while a lane has nothing to do."""
        for name, subscription in self._subscriptions.items():
            hungry = self._hands.hungry(name, subscription.batch or BATCH)
            if any(read_to < self._safe for read_to in hungry.values()):
                return 0.0
        if not self._log.held_back_by:
            self._held_s = _HELD_S
            return longest_s
        pause_s, self._held_s = self._held_s, min(self._held_s * 2, _HELD_LONGEST_S)
        return min(longest_s, pause_s)

    async def _page(
        self, subscription: Subscription, after: int, until: int, numbers: Sequence[int], limit: int
    ) -> list[Row]:
        wanted = json.dumps(numbers)
        partitions = self._hands.partitions[subscription.name]

        async def unit(tx: Tx) -> list[Row]:
            return await tx.fetch_all(
                "event.of_partitions",
                category=subscription.category,
                partitions=partitions,
                wanted=wanted,
                after=after,
                until=until,
                limit=limit,
            )

        return await self._store.read(unit)
