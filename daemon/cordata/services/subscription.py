"""The stream subscriptions of one worker: claim in batches, handle side by side, settle in batches.

    pump:   sleep -> settle what is finished and claim more, in one unit -> queue of each group
    lanes:  queue -> handler -> finished      (`concurrency` lanes per group)

One unit per pass serves all groups, so a pass costs one commit however many there are.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence

from cordata import clock
from cordata.beat import Beat
from cordata.broker import Broker, Claimed, Due, Message, Outcome, Owner, Want, mark_of
from cordata.config.sections import EngineConfig
from cordata.context import Context
from cordata.core.delivery import Verdict, mean_duration_s, prefetch_count
from cordata.core.retry import next_delay_s
from cordata.errors import StoreUnavailable
from cordata.log import logger
from cordata.registry import Subscription
from cordata.services.alarm import Alarm, waking
from cordata.services.alongside import alongside
from cordata.services.handling import Handling
from cordata.services.pace import SPACING_S, Pace

log = logger("cordata.engine")

#: First and longest pause while the store cannot be written.
_FIRST_S, _LONGEST_S = 0.25, 5.0
#: At the stop a store that takes no writes gets this long to take the last results.
_SETTLE_S = 3.0


class _Group:
    """One subscription's queue and lanes."""

    def __init__(self, subscription: Subscription, config: EngineConfig) -> None:
        self.subscription = subscription
        self.concurrency = subscription.concurrency or config.concurrency
        self.queue: asyncio.Queue[Message | None] = asyncio.Queue()
        self.running = 0
        #: The last claim left some that are due.
        self.more = False
        self._batch = config.batch
        self._mean_s = 0.0

    @property
    def held(self) -> int:
        return self.queue.qsize() + self.running

    def wanted(self) -> int:
        """Messages to claim: none while more than half of what it should hold is there."""
        full = prefetch_count(self._mean_s, concurrency=self.concurrency, batch=self._batch)
        return full - self.held if self.held <= full // 2 else 0

    def ended(self, duration_s: float) -> None:
        self.running -= 1
        self._mean_s = mean_duration_s(self._mean_s, (duration_s,))


class SubscriptionService:
    """All subscriptions of one worker. At its stop nothing is claimed any more, running handlers
    end, and what was not begun is given back.
    """

    name = "subscriptions"

    def __init__(
        self,
        ctx: Context,
        broker: Broker,
        owner: Owner,
        subscriptions: Sequence[Subscription],
        config: EngineConfig,
        *,
        hurried: bool = False,
    ) -> None:
        """`hurried`: test mode, in which a failed message is due again at once."""
        self.beat = Beat(max_age_s=30.0 + config.poll_s)
        self.handled_count = 0
        self.dead_count = 0
        self._store = ctx.store
        self._broker = broker
        self._owner = owner
        self._config = config
        self._handling = Handling(ctx, config, owner_id=owner.id, hurried=hurried)
        self._groups = {s.group: _Group(s, config) for s in subscriptions}
        self._alarm = Alarm()
        self._finished: list[Outcome] = []
        self._settle_timer: asyncio.TimerHandle | None = None
        self._lanes = 0
        self._failures = 0
        self._renewed_deadline = 0.0

    def status(self) -> str:
        """For STATUS=."""
        held = sum(group.held for group in self._groups.values())
        return f"{held} messages in hand" if held else ""

    async def run(self, stop: asyncio.Event) -> None:
        """Handle messages until `stop`, then until the hands are empty."""
        async with (
            waking(self._alarm, stop),
            alongside(self._broker.listen(self._owner.id, list(self._groups), self._alarm.ring)),
            asyncio.TaskGroup() as lanes,
        ):
            for group in self._groups.values():
                for _ in range(group.concurrency):
                    self._lanes += 1
                    lanes.create_task(self._lane(group))
            await self._pump(stop)
            await self._broker.quiet(self._owner.id)
            self._give_back()
            await self._drain()
        await self._broker.leave(self._owner.id)

    async def _pump(self, stop: asyncio.Event) -> None:
        pace = Pace(self._store)
        while not stop.is_set():
            self.beat.touch()
            await pace.next(full=any(group.more for group in self._groups.values()))
            sleep_s = await self.run_once()
            if sleep_s > 0.0:
                await self._alarm.sleep(sleep_s)

    async def run_once(self) -> float:
        """One pass: settle, renew, claim. Returns the seconds to sleep after it."""
        wanted = {
            n: Want(live=count, backfill=count)
            for n, g in self._groups.items()
            if (count := g.wanted()) > 0
        }
        try:
            await self._renew()
            next_at = await self._exchange(wanted)
        except StoreUnavailable as error:
            return self._back_off(error)
        if self._failures:
            log.info("streams are read again")
            self._failures = 0
        return self._sleep_s(wanted, next_at)

    async def _exchange(self, wanted: Mapping[str, Want]) -> Mapping[str, Due]:
        """Settle and claim; looks first when there is nothing to settle, since every worker is
        woken for every message and one finds it.
        """
        if not self._finished:
            if not wanted:
                return {}
            due = await self._broker.due_at(wanted)
            moments = [at for one in due.values() if (at := one.first()) is not None]
            if not moments or min(moments) > self._store.now_us():
                return due
        outcomes, self._finished = self._finished, []
        try:
            claimed = await self._broker.exchange(self._owner.id, outcomes, wanted)
        except BaseException:
            self._finished = outcomes + self._finished
            raise
        self._hand_out(claimed)
        return claimed.next_at

    def _hand_out(self, claimed: Claimed) -> None:
        for message in claimed.messages:
            self._groups[message.group].queue.put_nowait(message)

    def _sleep_s(self, wanted: Mapping[str, Want], next_at: Mapping[str, Due]) -> float:
        """Until the next scheduled message, or a lane or the topic rings earlier."""
        now_us = self._store.now_us()
        sleep_s = min(self._config.poll_s, self._config.claim_timeout_s / 3)
        for name in wanted:
            group = self._groups[name]
            at = next_at.get(name, Due()).first()
            group.more = at is not None and at <= now_us
            if group.more and group.wanted():
                return 0.0
            if at is not None and at > now_us:
                sleep_s = min(sleep_s, (at - now_us) / 1e6)
        return sleep_s

    def _back_off(self, error: StoreUnavailable) -> float:
        self._failures += 1
        if self._failures == 1:
            log.warning("streams wait: %s", error)
        return next_delay_s(self._failures, random.random(), first_s=_FIRST_S, longest_s=_LONGEST_S)

    async def _renew(self) -> None:
        """Keep the claims of what is in hand alive, well before they expire."""
        now = clock.monotonic()
        if not any(group.held for group in self._groups.values()):
            self._renewed_deadline = now + self._config.claim_timeout_s / 3
        elif now >= self._renewed_deadline:
            await self._broker.renew(self._owner.id)
            self._renewed_deadline = now + self._config.claim_timeout_s / 3

    async def _lane(self, group: _Group) -> None:
        try:
            while (message := await group.queue.get()) is not None:
                group.running += 1
                begun = clock.monotonic()
                slot = self._owner.begin(mark_of(group.subscription.group, message.id))
                outcome = await self._handling.attempt(group.subscription, message)
                self._owner.end(slot)
                group.ended(clock.monotonic() - begun)
                self._count(outcome)
                self._finish(outcome, ring=group.more and group.wanted() > 0)
        finally:
            self._lanes -= 1
            self._alarm.ring()

    def _count(self, outcome: Outcome) -> None:
        if outcome.verdict is Verdict.DONE:
            self.handled_count += 1
        elif outcome.verdict is Verdict.DEAD:
            self.dead_count += 1

    def _finish(self, outcome: Outcome, *, ring: bool) -> None:
        """Settled with others: at once if the pump has to claim anyway, else after a moment."""
        self._finished.append(outcome)
        if ring:
            self._alarm.ring()
        elif self._settle_timer is None:
            loop = asyncio.get_running_loop()
            self._settle_timer = loop.call_later(SPACING_S, self._settle_now)

    def _settle_now(self) -> None:
        self._settle_timer = None
        self._alarm.ring()

    def _give_back(self) -> None:
        """What no lane has begun goes back; each lane ends after its message in hand."""
        for group in self._groups.values():
            while not group.queue.empty():
                message = group.queue.get_nowait()
                if message is not None:
                    self._finished.append(
                        Outcome(
                            group=message.group,
                            id=message.id,
                            verdict=Verdict.BACK,
                            order_key=message.order_key,
                        )
                    )
            for _ in range(group.concurrency):
                group.queue.put_nowait(None)

    async def _drain(self) -> None:
        """Until every lane has ended and everything is settled; the role's deadline bounds it.

        Nobody waits for a full disk, though: what is not settled then is taken back by another
        process, as from a dead one, and handled again; seen-marks keep its effects single.
        """
        deadline: float | None = None
        while self._lanes or self._finished:
            self.beat.touch()
            try:
                await self._renew()
                await self._exchange({})
            except StoreUnavailable as error:
                pause_s, now = self._back_off(error), clock.monotonic()
                if not self._lanes:
                    deadline = now + _SETTLE_S if deadline is None else deadline
                    if now >= deadline:
                        count = len(self._finished)
                        log.warning("the results of %d messages stay unsettled: %s", count, error)
                        return
                    pause_s = min(pause_s, deadline - now)
                await self._alarm.sleep(pause_s)
            if self._lanes:
                await self._alarm.sleep(1.0)
