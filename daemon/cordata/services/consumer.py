"""The consumer of one worker: claim in batches, handle side by side, settle in batches.

    pump:    sleep -> settle what is finished and claim more, in one unit -> runs of each group
    places:  run -> handler, message after message -> finished     (`concurrency` places per group)

One unit per pass serves all groups, so a pass costs one commit however many there are.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence

from cordata import clock
from cordata.broker import Broker, Due, Message, Outcome, Owner, Want, mark_of
from cordata.broker.direct import Taker
from cordata.broker.message import NOTHING, back, claimable
from cordata.broker.stray import Mark
from cordata.config.sections import EngineConfig
from cordata.context import Context
from cordata.core.claim import renewal_s
from cordata.core.delivery import Verdict
from cordata.core.retry import next_delay_s
from cordata.errors import StoreUnavailable
from cordata.heartbeat import Heartbeat
from cordata.log import logger
from cordata.registry import Handler
from cordata.services.calling import Sentinel, after, say_cut_off
from cordata.services.groups import Groups
from cordata.services.handling import Handling
from cordata.services.loop import SPACING_S, Pace, WakeEvent, background, wake_on
from cordata.services.places import Places, Run

log = logger("cordata.engine")

#: First and longest pause while the store cannot be written.
_FIRST_S, _LONGEST_S = 0.25, 5.0
#: At the stop a store that takes no writes gets this long to take the last results.
_SETTLE_S = 3.0
#: After these the next message of a key may be handled.
_NEXT = (Verdict.DONE, Verdict.DEAD)


class ConsumerService:
    """The handlers of one worker. At its stop nothing is claimed any more, running handlers
    end, and what was not begun is given back.
    """

    name = "consumer"

    def __init__(
        self,
        ctx: Context,
        broker: Broker,
        owner: Owner,
        handlers: Sequence[Handler],
        config: EngineConfig,
        *,
        hurried: bool = False,
        cut_off_s: float | None = None,
    ) -> None:
        """`hurried`: test mode, in which a failed message is due again at once.

        `cut_off_s` after the stop handlers that still run are cancelled, and their messages given
        back without an attempt being counted; None: never.
        """
        self.heartbeat = Heartbeat(max_age_s=30.0 + config.poll_s)
        self.handled_count = 0
        self.dead_count = 0
        self._store = ctx.store
        self._broker = broker
        self._owner = owner
        self._config = config
        self._handling = Handling(ctx, config, owner_id=owner.id, hurried=hurried)
        self._groups = Groups(handlers, config)
        self._wake = WakeEvent()
        self._finished: list[Outcome] = []
        self._settle_timer: asyncio.TimerHandle | None = None
        #: Places whose task runs.
        self._open = 0
        self._cut_off_s = cut_off_s
        self._cut_off = False
        #: What was just finished lets the next ones of its key go on.
        self._hurry = False
        #: A pass found room that was kept for the relay.
        self._crowded = False
        self._failures = 0
        self._renewal_s = renewal_s(config.claim_timeout_s)
        self._renewed_deadline = 0.0

    def status(self) -> str:
        """For STATUS=."""
        held = self._groups.held
        return f"{held} messages in hand" if held else ""

    async def run(self, stop: asyncio.Event) -> None:
        """Handle messages until `stop`, then until the hands are empty."""
        self._broker.bring(Taker(self._owner.id, self._groups.expect, self._receive, self._known))
        async with (
            wake_on(self._wake, stop),
            background(self._broker.listen(self._owner.id, self._groups.names, self._word)),
            asyncio.TaskGroup() as tasks,
        ):
            sentinel = Sentinel(tasks, self._groups.say_stubborn)
            self._handling.ending = lambda: self._cut_off or sentinel.ending()
            handlers = []
            for group in self._groups:
                for _ in range(group.count):
                    self._open += 1
                    handlers.append(tasks.create_task(self._place(group)))
            await self._pump(stop)
            await self._broker.quiet(self._owner.id)
            self._give_back()
            with after(self._cut_off_s, lambda: self._cut_off_all(handlers)):
                await self._drain()
            sentinel.dismiss()
        await self._broker.leave(self._owner.id)

    async def _pump(self, stop: asyncio.Event) -> None:
        pace = Pace(self._store)
        while not stop.is_set():
            self.heartbeat.touch()
            await pace.next(full=self._hurry or self._groups.is_free())
            sleep_s = await self.run_once()
            if sleep_s > 0.0:
                await self._wake.wait(sleep_s)

    def _word(self) -> None:
        """There may be something new."""
        if not self._groups.wanted():
            self._broker.pass_on()
        self._wake.set()

    def _receive(self, messages: Sequence[Message]) -> None:
        """What the relay has brought, claimed already; or it brings nothing."""
        late = self._groups.receive(messages)
        self._finished += map(back, late)
        if late or self._crowded:
            self._crowded = False
            self._wake.set()

    def _known(self) -> set[Mark]:
        """All in hand, and what is not settled yet."""
        return self._groups.known() | {(o.group, o.id) for o in self._finished}

    async def run_once(self) -> float:
        """One pass: settle, renew, claim. Returns the seconds to sleep after it."""
        wanted = self._groups.wanted()
        self._crowded = self._crowded or self._groups.expecting
        try:
            await self._renew()
            next_at = await self._exchange(wanted)
        except StoreUnavailable as error:
            return self._back_off(error)
        if self._failures:
            log.info("streams are read again")
            self._failures = 0
        sleep_s = self._sleep_s(wanted, next_at)
        if not wanted or self._groups.more:
            self._broker.pass_on()
        return sleep_s

    async def _exchange(self, wanted: Mapping[str, Want]) -> Mapping[str, Due]:
        """Settle and claim; looks first when there is nothing to settle, since every worker is
        woken for what comes from elsewhere and one finds it.
        """
        if not self._finished and not wanted:
            return {}
        sure = self._broker.expects() and all(want.live for want in wanted.values())
        if not self._finished and not sure:
            next_at = await self._broker.due_at(wanted)
            if not claimable(wanted, next_at, self._store.now_us()):
                return next_at
        outcomes, self._finished = self._finished, []
        self._hurry = False
        try:
            claimed = await self._broker.exchange(self._owner.id, outcomes, wanted)
        except BaseException:
            self._finished = outcomes + self._finished
            raise
        self._finished += map(back, self._groups.put(claimed.messages))
        return claimed.next_at

    def _sleep_s(self, wanted: Mapping[str, Want], next_at: Mapping[str, Due]) -> float:
        """Until the next scheduled message, or a place or the topic rings earlier."""
        now_us = self._store.now_us()
        sleep_s = min(self._config.poll_s, self._renewal_s)
        for name in wanted:
            group, due = self._groups[name], next_at.get(name, NOTHING)
            group.live.more = due.live is not None and due.live <= now_us
            group.backfill.more = due.backfill is not None and due.backfill <= now_us
            later = [at for at in due if at is not None and at > now_us]
            sleep_s = min([sleep_s, *((at - now_us) / 1e6 for at in later)])
        still = self._groups.still_wanted(wanted)
        if not claimable(still, next_at, now_us):
            return sleep_s
        live = {name: want._replace(backfill=0) for name, want in still.items()}
        # The backfill takes its time, in which word of something live is waited for.
        return 0.0 if claimable(live, next_at, now_us) else min(sleep_s, SPACING_S)

    def _back_off(self, error: StoreUnavailable) -> float:
        self._failures += 1
        if self._failures == 1:
            log.warning("streams wait: %s", error)
        return next_delay_s(self._failures, random.random(), first_s=_FIRST_S, longest_s=_LONGEST_S)

    async def _renew(self) -> None:
        """Keep the claims of what is in hand alive, well before they expire."""
        now = clock.monotonic()
        if not self._groups.held and not self._broker.doubts():
            self._renewed_deadline = now + self._renewal_s
        elif now >= self._renewed_deadline:
            await self._broker.renew(self._owner.id)
            self._renewed_deadline = now + self._renewal_s

    async def _place(self, group: Places) -> None:
        try:
            while (taken := await group.take_whatever(self._handling.ending)) is not None:
                lane, run = taken
                begun = clock.monotonic()
                try:
                    count = await self._handle(group, run)
                except BaseException:
                    del lane.running[id(run)]  # nothing of it goes on
                    raise
                group.ended(lane, run, clock.monotonic() - begun, count)
                # A run that was cut off may go on as soon as it is settled.
                cut = run[0].order_key is not None and len(run) >= group.run_length()
                self._hurry = self._hurry or cut
                urgent = lane is group.live and lane.more and lane.wanted() > 0
                self._ring(now=cut or urgent)
                if lane is group.backfill:
                    await asyncio.sleep(0)  # else handlers that never wait keep the loop
        finally:
            self._open -= 1
            self._wake.set()

    async def _handle(self, group: Places, run: Run) -> int:
        """Handle a run until one fails or the role stops; the rest goes back. Returns how many."""
        for count, message in enumerate(run, start=1):
            slot = self._owner.begin(mark_of(message.group, message.id))
            try:
                outcome = await self._handling.attempt(group.handler, message)
            except asyncio.CancelledError:
                if group.closed:  # in order; else this process dies, perhaps of this very message
                    self._owner.end(slot)
                if self._cut_off:
                    self._finished += map(back, run[count - 1 :])
                raise
            self._owner.end(slot)
            self._count(outcome)
            self._finished.append(outcome)
            if count < len(run) and (group.closed or outcome.verdict not in _NEXT):
                self._finished += map(back, run[count:])
                return count
        return len(run)

    def _count(self, outcome: Outcome) -> None:
        if outcome.verdict is Verdict.DONE:
            self.handled_count += 1
        elif outcome.verdict is Verdict.DEAD:
            self.dead_count += 1

    def _ring(self, *, now: bool) -> None:
        """Settle with others: at once if the pump has to claim anyway, else after a moment."""
        if now:
            self._wake.set()
        elif self._settle_timer is None:
            loop = asyncio.get_running_loop()
            self._settle_timer = loop.call_later(SPACING_S, self._settle_now)

    def _settle_now(self) -> None:
        self._settle_timer = None
        self._wake.set()

    def _give_back(self) -> None:
        """What no place has begun goes back; each place ends after its message in hand."""
        for group in self._groups:
            self._finished += map(back, group.close())

    def _cut_off_all(self, handlers: Sequence[asyncio.Task[None]]) -> None:
        """The stop does not wait any longer: what still runs begins again in another process."""
        self._cut_off = True
        for group in self._groups:
            if count := len(group.live.running) + len(group.backfill.running):
                say_cut_off(group.handler.group, count)
        for handler in handlers:
            handler.cancel()

    async def _drain(self) -> None:
        """Until every place has ended and everything is settled; the role's deadline bounds it.

        Nobody waits for a full disk, though: what is not settled then is taken back by another
        process, as from a dead one, and handled again; seen-marks keep its effects single.
        """
        deadline: float | None = None
        while self._open or self._finished:
            self.heartbeat.touch()
            try:
                await self._renew()
                await self._exchange({})
            except StoreUnavailable as error:
                pause_s, now = self._back_off(error), clock.monotonic()
                if not self._open:
                    deadline = now + _SETTLE_S if deadline is None else deadline
                    if now >= deadline:
                        count = len(self._finished)
                        log.warning("the results of %d messages stay unsettled: %s", count, error)
                        return
                    pause_s = min(pause_s, deadline - now)
                await self._wake.wait(pause_s)
            if self._open:
                await self._wake.wait(1.0)
