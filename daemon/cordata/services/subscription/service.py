"""The subscriptions of one worker: partitions, reads and positions, pass after pass."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from cordata import clock
from cordata.config.sections import EngineConfig
from cordata.context import Context
from cordata.core.retry import Backoff
from cordata.errors import StoreUnavailable, TransientError
from cordata.eventstore import EventLog
from cordata.eventstore.inspection import Subscriptions
from cordata.eventstore.log import EVENT_TOPIC
from cordata.eventstore.partition import SUBSCRIPTION_TOPIC, Partitions
from cordata.heartbeat import Heartbeat
from cordata.log import logger
from cordata.metrics.process import Outcomes
from cordata.process import PROCESS_TOPIC, ProcessLease
from cordata.services.handler_call import after
from cordata.services.loop import Pace, WakeEvent, background, wake_on
from cordata.services.subscription.crash import CrashedAttempts, RunningAttempts
from cordata.services.subscription.membership import assign
from cordata.services.subscription.partition import Counts, Dependencies, PartitionRunner
from cordata.services.subscription.reader import EventReader
from cordata.services.subscription.runners import PartitionRunners, positions
from cordata.store import watch
from cordata.subscription import Subscription

log = logger("cordata.engine")

#: Pauses while the store is unavailable.
_BACKOFF = Backoff(0.25, 5.0)
#: Positions of events that were handled without a commit are stored after this long.
FLUSH_S = 0.5
#: Positions that moved without an event are stored this often.
_QUIET_S = 60.0
#: First pause before the next attempt to claim while this process has less than its share; doubled
#: each time.
_SHORT_S = 0.05
#: How long a pass waits for transactions in flight, to find the last event of a new subscription.
_HEAD_S = 10.0
#: At the stop: how long to try to store the positions.
_LEAVE_S = 3.0


class SubscriptionService:
    """All subscriptions of one worker. At its stop the current event of each partition is
    finished, and the partitions are given back with their positions.
    """

    name = "subscriptions"

    def __init__(
        self,
        ctx: Context,
        lease: ProcessLease,
        runtime_dir: Path,
        subscriptions: Mapping[str, Subscription],
        config: EngineConfig,
        *,
        retry_at_once: bool = False,
        cut_off_s: float | None = None,
        metrics: Mapping[str, Outcomes] = MappingProxyType({}),
    ) -> None:
        """`lease`: renewed by ProcessLeaseService. `retry_at_once`: test mode, in which
        a failed event is due again at once. `metrics`: where attempts are counted, by subscription.

        `cut_off_s` after the stop handlers that still run are cancelled, and their partitions given
        back without an attempt being counted; None: never.
        """
        self._cut_off_s = cut_off_s
        self.heartbeat = Heartbeat(max_age_s=30.0 + config.poll_s)
        self._store = ctx.store
        self._subscriptions = subscriptions
        self._lease = lease
        self._config = config
        self._wake = WakeEvent()
        self._log = EventLog(ctx.store)
        self._partitions = Partitions(ctx.store)
        self._running = RunningAttempts(runtime_dir)
        self._crashed = CrashedAttempts(runtime_dir)
        self.counts = Counts()
        shared = Dependencies(
            ctx=ctx,
            partitions=self._partitions,
            process_id=lease.process.id,
            backoff=Backoff(config.retry_first_s, config.retry_max_s),
            running=self._running,
            crashed=self._crashed,
            is_leased=lease.is_held,
            retry_at_once=retry_at_once,
            metrics=metrics,
            counts=self.counts,
            on_event_end=self._event_ended,
        )
        self._runners = PartitionRunners(subscriptions, shared)
        self._reader = EventReader(ctx.store, self._log, subscriptions, self._runners)
        self._unregistered = list(subscriptions.values())
        self._is_serving = False
        self._failures = 0
        self._look_deadline = self._quiet_deadline = 0.0
        self._short_s = _SHORT_S
        self._flush_timer: asyncio.TimerHandle | None = None
        self._flush_due = False

    def status(self) -> str:
        """For STATUS=."""
        count, blocked = len(self._runners), sum(one.blocked for one in self._runners.all())
        return f"{count} partitions" + (f", {blocked} blocked" if blocked else "")

    async def run(self, stop: asyncio.Event) -> None:
        """Handle events until `stop`, then until the current events are handled."""
        try:
            async with (
                wake_on(self._wake, stop, self._store, EVENT_TOPIC),
                background(
                    watch(self._store, SUBSCRIPTION_TOPIC, self._look_soon),
                    watch(self._store, PROCESS_TOPIC, self._look_soon),
                ),
                asyncio.TaskGroup() as group,
            ):
                await self._run_passes(stop, group)
                self._runners.stop()
                with after(self._cut_off_s, self._runners.cut_off):
                    await self._leave()
        finally:
            self._running.close()
            if self._flush_timer is not None:
                self._flush_timer.cancel()

    async def quiet_at(self) -> int | None:
        """The position up to which everything is handled; None while events are left.

        Blocked partitions do not count: no worker handles them. Raises: StoreUnavailable.
        """
        subscriptions = Subscriptions(self._store)
        head = await self._log.safe_position()
        is_busy = any(one.busy for one in self._runners.all())
        if is_busy or self._log.held_back_by or self._unregistered:
            return None
        for name in self._subscriptions:
            status = await subscriptions.status(name)
            if status is None or any(
                one.behind for one in status.partitions if one.blocked_at is None
            ):
                return None
        return head

    async def _run_passes(self, stop: asyncio.Event, group: asyncio.TaskGroup) -> None:
        pace = Pace(self._store)
        while not stop.is_set():
            self.heartbeat.touch()
            await pace.next(full=self._reader.is_behind)
            try:
                sleep_s = await self.run_once(group)
            except TransientError as error:
                sleep_s = self._back_off(error)
            else:
                if self._failures:
                    log.info("subscriptions go on")
                    self._failures = 0
            if sleep_s > 0.0:
                await self._wake.wait(sleep_s)

    async def run_once(self, group: asyncio.TaskGroup) -> float:
        """One pass; new partitions run in `group`. Returns the seconds to sleep after it.

        Raises: StoreUnavailable; TransientError when a new subscription begins at the end, and
        transactions in flight hide which event is the last one.
        """
        while self._unregistered:
            await self._register(self._unregistered[-1])
            self._unregistered.pop()
        if not self._is_serving:
            await self._lease.serve(self._subscriptions)
            self._is_serving = True
        await self._update_partitions(group)
        await self._reader.run_once()
        await self._store_positions()
        look_in_s = max(0.001, self._look_deadline - clock.monotonic())
        return self._reader.sleep_s(min(self._config.poll_s, look_in_s))

    async def _register(self, subscription: Subscription) -> None:
        origin = subscription.origin
        if origin in ("start", "end"):
            known = origin == "start" or await self._partitions.known(subscription.name)
            origin = 0 if known else await self._log.head(timeout_s=_HEAD_S)
        found = await self._partitions.add(
            subscription.name, subscription.category, subscription.partitions, int(origin)
        )
        if found is not None and found["category"] != subscription.category:
            log.warning(
                "%s subscribes to %s now, before to %s; it continues from its position",
                subscription.name,
                subscription.category,
                found["category"],
            )
        if found is not None and found["partitions"] != subscription.partitions:
            log.warning(
                "%s keeps its %d partitions until its next reset; the code says %d",
                subscription.name,
                found["partitions"],
                subscription.partitions,
            )

    async def _update_partitions(self, group: asyncio.TaskGroup) -> None:
        """Release partitions whose runner has ended, and claim or drop some from time to time."""
        if ended := self._runners.ended():
            released = positions(one for one in ended if not one.lost)
            if released:
                await self._partitions.release(released)
            self._runners.forget(ended)
            self._look_soon()
        if clock.monotonic() >= self._look_deadline:
            # Changes are notified; this finds expired leases, and makes up for a lost notification.
            self._look_deadline = clock.monotonic() + self._config.process_lease_s / 4
            assignment = await assign(
                self._partitions, self._lease.process.id, self._subscriptions, self._crashed
            )
            self._runners.apply(assignment, group)
            if not assignment.short:
                self._short_s = _SHORT_S
            else:  # claims of other processes are not notified
                again_deadline = clock.monotonic() + self._short_s
                self._look_deadline = min(self._look_deadline, again_deadline)
                self._short_s *= 2

    async def _store_positions(self) -> None:
        """Store positions of events handled without a commit, and now and then all positions."""
        now = clock.monotonic()
        quiet = now >= self._quiet_deadline
        if not (self._flush_due or quiet):
            return
        if runners := self._runners.unstored(quiet=quiet):
            moved = positions(runners)
            await self._partitions.store(moved)
            for one, (_, position) in zip(runners, moved, strict=True):
                one.stored = max(one.stored, position)
        self._flush_due = False
        if quiet:
            self._quiet_deadline = now + _QUIET_S

    def _look_soon(self) -> None:
        """Read the owners in the next pass. All processes do so at once, and may collide."""
        self._look_deadline = 0.0
        self._short_s = _SHORT_S
        self._wake.set()

    def _event_ended(self, runner: PartitionRunner) -> None:
        if runner.stopping or self._reader.has_more_for(runner):
            self._wake.set()
        if runner.is_unstored and self._flush_timer is None:
            loop = asyncio.get_running_loop()
            self._flush_timer = loop.call_later(FLUSH_S, self._flush_soon)

    def _flush_soon(self) -> None:
        self._flush_timer = None
        self._flush_due = True
        self._wake.set()

    def _back_off(self, error: TransientError) -> float:
        self._failures += 1
        if self._failures == 1:
            log.warning("subscriptions wait: %s", error)
        return _BACKOFF.delay_s(self._failures)

    async def _leave(self) -> None:
        """Release all partitions when their runners have ended, within the role's deadline.

        If the store takes no writes, give up after _LEAVE_S: other processes take the partitions
        over, and handle again the events after the stored positions.
        """
        deadline: float | None = None
        while True:
            self.heartbeat.touch()
            pause_s = 1.0
            if len(self._runners.ended()) == len(self._runners):
                try:
                    await self._partitions.release(
                        positions(one for one in self._runners.all() if not one.lost)
                    )
                    await self._lease.serve(())
                    return
                except StoreUnavailable as error:
                    pause_s, now = self._back_off(error), clock.monotonic()
                    deadline = now + _LEAVE_S if deadline is None else deadline
                    if now >= deadline:
                        log.warning("the positions of subscriptions stay unstored: %s", error)
                        return
            await self._wake.wait(pause_s)
