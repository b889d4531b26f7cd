"""Subscriptions to the event store, one event after the other, by the lanes of a worker."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any

from cordata.app import App
from cordata.broker import Owner
from cordata.config.sections import EngineConfig
from cordata.context import Context
from cordata.core.partition import cohorts
from cordata.eventstore import EventLog, Partitions, Standing, StoredEvent
from cordata.services.subscription.deaths import Deaths
from cordata.services.subscription.lane import Lane
from cordata.services.subscription.surroundings import Surroundings
from cordata.store import Row, Tx
from cordata.subscription import Subscription, SubscriptionContext
from cordata.testing.failure import Failure, FailureRecorder

_PAGE = 100
#: Nobody else is there to take anything: the lease is as long as any test's time.
_LEASE_US = 2**61


class _SteppedLane(Lane):
    """A lane that a test moves on."""

    @property
    def due_at(self) -> int | None:
        """When its first event is due; None: it has none, or waits for an operator."""
        if self.blocked or not self.queue:
            return None
        return self._failing_due_at if self._failing_first else self._pause_until

    async def step(self) -> None:
        """Handle its first event."""
        await self._handle(self.queue[0])


class SubscriptionRunner:
    """All partitions of all subscriptions, in one hand."""

    def __init__(self, ctx: Context, app: App, config: EngineConfig, owner: Owner) -> None:
        self._store = ctx.store
        self._owner_id = owner.id
        self._log = EventLog(ctx.store)
        self._partitions = Partitions(ctx.store)
        self._failures = FailureRecorder()
        self._subscriptions = {name: self._watched(one) for name, one in app.subscriptions.items()}
        self._lanes: dict[tuple[str, int], _SteppedLane] = {}
        self._around = Surroundings(
            ctx=ctx,
            partitions=self._partitions,
            owner=owner,
            config=config,
            deaths=Deaths(),
            leased=lambda: True,
            hurried=False,
            ended=lambda lane: None,
            gave_up=lambda: None,
        )

    async def register(self) -> None:
        """Begin, as a worker does: new subscriptions at their origin."""
        for one in self._subscriptions.values():
            origin = {"start": 0, "end": await self._log.head()}.get(str(one.origin), one.origin)
            await self._partitions.add(one.name, one.category, one.partitions, int(origin))
        if self._subscriptions:
            await self._partitions.join(self._owner_id, self._subscriptions, lease_us=_LEASE_US)

    async def look(self) -> None:
        """See what was resumed or reset meanwhile, and take what is free."""
        if not self._subscriptions:
            return
        table = await self._partitions.look(self._subscriptions)
        free: dict[str, list[int]] = {}
        for standing in table.standings:
            lane = self._lanes.get((standing.subscription, standing.partition))
            if standing.owner != self._owner_id:
                free.setdefault(standing.subscription, []).append(standing.partition)
            elif lane is None or lane.claim != standing.claim:
                self._begin(standing)
            elif lane.blocked and standing.blocked_at is None:
                lane.take(standing)
        if free:
            for standing in await self._partitions.claim(
                self._owner_id, free, out_of=table.partitions
            ):
                self._begin(standing)

    async def step(self) -> tuple[int, Failure | None]:
        """Handle one event of each subscription that is due, of the oldest stream first.

        Returns how many were handled, and the failure that ended the step.
        """
        count = 0
        for name in self._subscriptions:
            await self._feed(name)
            lane = self._next_lane(name)
            if lane is None:
                continue
            count += 1
            failure = await self._handle(lane)
            if failure is not None:
                return count, failure
        return count, None

    async def next_at(self) -> int | None:
        """When the next event that failed is due again, in microseconds; None: none waits."""
        moments = [at for lane in self._lanes.values() if (at := lane.due_at)]
        return min(moments, default=None)

    async def _handle(self, lane: _SteppedLane) -> Failure | None:
        self._failures.clear()
        await lane.step()
        if lane.unstored:
            await self._partitions.store([(lane.claim, lane.position)])
            lane.stored = lane.position
        return self._failures.failure(lane.subscription.name, lane.subscription.timeout_s)

    def _next_lane(self, name: str) -> _SteppedLane | None:
        now_us = self._store.now_us()
        ready = [
            lane
            for (subscription, _), lane in self._lanes.items()
            if subscription == name and (at := lane.due_at) is not None and at <= now_us
        ]
        return min(ready, key=lambda lane: int(lane.queue[0]["position"]), default=None)

    async def _feed(self, name: str) -> None:
        """Read on for the lanes that have run dry."""
        lanes = {number: lane for (one, number), lane in self._lanes.items() if one == name}
        hungry = {number: lane.read_to for number, lane in lanes.items() if not lane.queue}
        open_ = {number: at for number, at in hungry.items() if not lanes[number].blocked}
        for after, until, numbers in cohorts(open_, await self._log.look()):
            rows = await self._page(self._subscriptions[name], len(lanes), after, until, numbers)
            for row in rows:
                lanes[row["partition"]].push(row)
            for number in numbers:
                lanes[number].read_to = rows[-1]["position"] if len(rows) == _PAGE else until

    async def _page(
        self, one: Subscription, partitions: int, after: int, until: int, numbers: Sequence[int]
    ) -> list[Row]:
        bounds: Mapping[str, Any] = {"after": after, "until": until, "limit": _PAGE}
        wanted = json.dumps(list(numbers))

        async def unit(tx: Tx) -> list[Row]:
            return await tx.fetch_all(
                "event.of_partitions",
                category=one.category,
                partitions=partitions,
                wanted=wanted,
                **bounds,
            )

        return await self._store.read(unit)

    def _begin(self, standing: Standing) -> None:
        subscription = self._subscriptions[standing.subscription]
        place = (standing.subscription, standing.partition)
        self._lanes[place] = _SteppedLane(subscription, standing, self._around)

    def _watched(self, subscription: Subscription) -> Subscription:
        """The same, but what its handler raises is noted on its way."""
        same = copy.copy(subscription)
        function = subscription.function

        async def watched(event: StoredEvent, ctx: SubscriptionContext) -> None:
            with self._failures.over(event):
                await function(event, ctx)

        same.function = watched
        return same
