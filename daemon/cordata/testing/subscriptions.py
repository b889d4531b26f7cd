"""Runs subscriptions to the event store one event at a time, with the code of a worker."""

from __future__ import annotations

import copy

from cordata.app import App
from cordata.config import Config
from cordata.context import Context
from cordata.core.retry import Backoff
from cordata.eventstore import EventLog, StoredEvent
from cordata.eventstore.partition import Partitions, PartitionState
from cordata.process import ProcessLease, this_process
from cordata.services.subscription.crash import CrashedAttempts, RunningAttempts
from cordata.services.subscription.partition import Dependencies, PartitionRunner
from cordata.services.subscription.reader import cohorts, read_page
from cordata.subscription import Subscription, SubscriptionContext
from cordata.testing.failure import Failure, FailureRecorder

_PAGE = 100
#: There is no other process: the lease is longer than any test's time.
_LEASE_S = 2.0**40


class SubscriptionRunner:
    """Runs all partitions of all subscriptions in the test's process."""

    def __init__(self, ctx: Context, app: App, config: Config) -> None:
        self._store = ctx.store
        self._lease = ProcessLease(ctx.store, this_process("test"), lease_s=_LEASE_S)
        self._owner_id = self._lease.process.id
        self._running = RunningAttempts(config.paths.runtime)
        self._log = EventLog(ctx.store)
        self._partitions = Partitions(ctx.store)
        self._failures = FailureRecorder()
        self._subscriptions = {name: self._watched(one) for name, one in app.subscriptions.items()}
        self._runners: dict[tuple[str, int], PartitionRunner] = {}
        self._shared = Dependencies(
            ctx=ctx,
            partitions=self._partitions,
            process_id=self._owner_id,
            backoff=Backoff(config.engine.retry_first_s, config.engine.retry_max_s),
            running=self._running,
            crashed=CrashedAttempts(config.paths.runtime),
            is_leased=lambda: True,
            retry_at_once=False,
            on_event_end=lambda runner: None,
        )

    async def register(self) -> None:
        """Register subscriptions as a worker does: new ones start at their origin."""
        for one in self._subscriptions.values():
            origin = {"start": 0, "end": await self._log.head()}.get(str(one.origin), one.origin)
            await self._partitions.add(one.name, one.category, one.partitions, int(origin))
        if self._subscriptions:
            await self._lease.serve(self._subscriptions)

    def close(self) -> None:
        """Close the file of running attempts; no event is handled after it."""
        self._running.close()

    async def refresh(self) -> None:
        """Restart partitions that were resumed or reset, and claim free ones."""
        if not self._subscriptions:
            return
        table = await self._partitions.read_table(self._subscriptions)
        free: dict[str, list[int]] = {}
        for state in table.states:
            runner = self._runners.get((state.subscription, state.partition))
            if state.owner != self._owner_id:
                free.setdefault(state.subscription, []).append(state.partition)
            elif runner is None or runner.claim != state.claim:
                self._start(state)
            elif runner.blocked and state.blocked_at is None:
                runner.restart(state)
        if free:
            for state in await self._partitions.claim(
                self._owner_id, free, out_of=table.partitions
            ):
                self._start(state)

    async def step(self) -> tuple[int, Failure | None]:
        """Handle one due event of each subscription, the one with the lowest position.

        Returns the number of attempts, and the failure that ended the step.
        """
        count = 0
        for name in self._subscriptions:
            await self._feed(name)
            runner = self._next_runner(name)
            if runner is None:
                continue
            count += 1
            failure = await self._handle(runner)
            if failure is not None:
                return count, failure
        return count, None

    async def next_at(self) -> int | None:
        """When the next event that failed is due again, in microseconds; None: none waits."""
        moments = [at for runner in self._runners.values() if (at := runner.due_at)]
        return min(moments, default=None)

    async def _handle(self, runner: PartitionRunner) -> Failure | None:
        self._failures.clear()
        await runner.handle_next()
        if runner.is_unstored:
            await self._partitions.store([(runner.claim, runner.position)])
            runner.stored = runner.position
        return self._failures.failure(runner.subscription.name, runner.subscription.timeout_s)

    def _next_runner(self, name: str) -> PartitionRunner | None:
        now_us = self._store.now_us()
        ready = [
            runner
            for (subscription, _), runner in self._runners.items()
            if subscription == name and (at := runner.due_at) is not None and at <= now_us
        ]
        return min(ready, key=lambda runner: int(runner.queue[0]["position"]), default=None)

    async def _feed(self, name: str) -> None:
        """Read further events for runners whose queue is empty."""
        runners = {number: runner for (one, number), runner in self._runners.items() if one == name}
        empty = {number: runner.read_to for number, runner in runners.items() if not runner.queue}
        open_ = {number: at for number, at in empty.items() if not runners[number].blocked}
        for after, until, numbers in cohorts(open_, await self._log.safe_position()):
            rows = await read_page(
                self._store,
                self._subscriptions[name],
                len(runners),
                numbers,
                after=after,
                until=until,
                limit=_PAGE,
            )
            for row in rows:
                runners[row["partition"]].push(row)
            for number in numbers:
                runners[number].read_to = rows[-1]["position"] if len(rows) == _PAGE else until

    def _start(self, state: PartitionState) -> None:
        subscription = self._subscriptions[state.subscription]
        place = (state.subscription, state.partition)
        self._runners[place] = PartitionRunner(subscription, state, self._shared)

    def _watched(self, subscription: Subscription) -> Subscription:
        """The subscription, with a handler that records what the original raises."""
        same = copy.copy(subscription)
        function = subscription.function

        async def watched(event: StoredEvent, ctx: SubscriptionContext) -> None:
            with self._failures.over(event):
                await function(event, ctx)

        same.function = watched
        return same
