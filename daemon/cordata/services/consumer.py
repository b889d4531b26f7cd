"""The consumer of one worker: claim in batches, handle side by side, settle in batches.

A run is one message, or several of one key, which are handled one after the other. What becomes of
it, and who moves it (each group has `concurrency` slots, tasks that call the handler):

    store --claim--> waiting --a slot is free--> running --> finished --settle--> store
            pump        |            slots          |           ^         pump
                        +---- given back: stop -----+-----------+

A message is held from its claim until it is settled. Each pass of the pump settles what is finished
and claims more, for all groups in one unit of work, so that a pass costs one commit. (With Redis a
pass that relays costs two more.)

A suspect, a message that may have killed a process, is handled alone, so that a second death has
one cause; if the others do not end within 5 s, beside them.

At the stop waiting runs are given back, and each running one ends after its current message. A
handler that still runs `cut_off_s` later is cut off: it is cancelled, and its message given back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType

from cordata import clock
from cordata.broker import Broker, ClaimLimit, Message, MessageId, Outcome
from cordata.broker.message import give_back
from cordata.config.sections import EngineConfig
from cordata.context import Context
from cordata.core.claim_size import (
    low_priority_slots,
    mean_duration_s,
    prefetch_count,
    run_length,
)
from cordata.core.herd_delay import HerdDelay
from cordata.core.message_state import Verdict
from cordata.core.retry import Backoff
from cordata.errors import StoreUnavailable
from cordata.heartbeat import Heartbeat
from cordata.log import logger, plural
from cordata.metrics.process import Outcomes
from cordata.registry import Handler
from cordata.services.attempt import Attempts
from cordata.services.handler_call import (
    CLEANUP_S,
    after,
    keep_running,
    log_cut_off,
    log_ignored_cancellation,
)
from cordata.services.loop import SPACING_S, Pace, WakeEvent, background, wake_on

log = logger("cordata.engine")

#: While the store cannot be written.
_BACKOFF = Backoff(0.25, 5.0)
#: At the stop, time to store the last results while the store takes no writes.
_SETTLE_S = 3.0
#: Longest wait of suspect messages for this worker to finish all others.
_SUSPECT_WAIT_S = 5.0
#: Verdicts after which the next message of a key may be handled.
_KEY_CONTINUES = (Verdict.DONE, Verdict.DEAD)

Run = Sequence[Message]


class ConsumerService:
    """Handles the messages of all groups of one worker. At its stop it claims nothing more, running
    handlers end, and messages that were not begun are given back.
    """

    name = "consumer"

    def __init__(
        self,
        ctx: Context,
        broker: Broker,
        handlers: Sequence[Handler],
        config: EngineConfig,
        *,
        owner: str,
        cut_off_s: float | None = None,
        metrics: Mapping[str, Outcomes] = MappingProxyType({}),
    ) -> None:
        """`owner`: this process. `metrics`: where attempts are counted, by group.

        `cut_off_s` after the stop handlers that still run are cancelled, and their messages given
        back without an attempt being counted; None: never.
        """
        self.heartbeat = Heartbeat(max_age_s=30.0 + config.poll_s)
        self.handled_count = 0
        self.dead_count = 0
        self._store = ctx.store
        self._broker = broker
        self._config = config
        self._attempts = Attempts(
            ctx,
            config,
            owner_id=owner,
            metrics=metrics,
            is_cancelled=self._is_cancelled,
        )
        self._groups = {handler.group: _Group(handler, config) for handler in handlers}
        self._wake = WakeEvent()
        self._herd = HerdDelay()
        #: Whether a wake-up that all processes got causes the next pass; only the looks of such
        #: passes count for `_herd` if they find nothing.
        self._is_shared_wake = False
        self._finished: list[Outcome] = []
        #: Wakes the pump: to look for messages, or to settle what is finished.
        self._timer: asyncio.Handle | None = None
        #: Loop time at which it does.
        self._timer_at = 0.0
        #: The tasks of all slots.
        self._slots: list[asyncio.Task[None]] = []
        self._cut_off_s = cut_off_s
        self._cut_off = False
        #: Whether a finished run was as long as a run may be: the next messages of its key can only
        #: be claimed when it is settled, so the next pass does not wait.
        self._key_may_have_more = False
        self._failures = 0
        #: Since when suspects wait until this worker has no other messages; None: there are none.
        self._suspects_since: float | None = None

    def status(self) -> str:
        """For STATUS=."""
        held = len(self.held_ids())
        text = f"{plural(held, 'message')} held" if held else ""
        return "; ".join(filter(None, (text, self._broker.status())))

    def held_ids(self) -> set[MessageId]:
        """Ids of all messages that are held, and not settled yet."""
        held = {message.id for group in self._groups.values() for message in group.messages()}
        return held | {outcome.message.id for outcome in self._finished}

    async def run(self, stop: asyncio.Event) -> None:
        """Handle messages until `stop`; then end the handlers, and settle all results if the store
        takes them.
        """
        types = {name: group.handler.type for name, group in self._groups.items()}
        async with (
            wake_on(self._wake, stop),
            background(self._broker.listen(types, self._on_messages, self._wake.set)),
            asyncio.TaskGroup() as tasks,
        ):
            for group in self._groups.values():
                for _ in range(group.concurrency):
                    self._slots.append(tasks.create_task(self._keep_slot(group)))
            await self._pump(stop)
            self._finished += map(give_back, self._broker.stop_claiming())
            for group in self._groups.values():  # each slot ends after its current message
                self._finished += map(give_back, group.close())
            with after(self._cut_off_s, self._cut_off_all):
                await self._drain()
        await self._broker.leave()

    def _on_messages(self) -> None:
        """There may be messages; other processes were woken, too."""
        self._is_shared_wake = True
        if wait_s := self._herd.wait_s:
            self._wake_after(wait_s)
        else:
            self._wake.set()

    def _wake_after(self, wait_s: float) -> None:
        """Wake the pump after this time, or before, if it is to be woken earlier anyway."""
        loop = asyncio.get_running_loop()
        at = loop.time() + wait_s
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer, self._timer_at = loop.call_at(at, self._on_timer), at

    def _on_timer(self) -> None:
        self._timer = None
        self._wake.set()

    async def _pump(self, stop: asyncio.Event) -> None:
        pace = Pace(self._store)
        while not stop.is_set():
            self.heartbeat.touch()
            full = self._key_may_have_more or any(group.more for group in self._groups.values())
            await pace.next(full=full)
            sleep_s = await self.run_once()
            if sleep_s > 0.0:
                await self._wake.wait(sleep_s)

    async def run_once(self) -> float:
        """One pass: settle and claim. Returns the seconds to sleep after it."""
        limits = self._claim_limits()
        try:
            next_at = await self._settle_and_claim(limits)
        except StoreUnavailable as error:
            return self._back_off(error)
        if self._failures:
            log.info("messages are claimed again")
            self._failures = 0
        if any(self._groups[name].more and self._groups[name].claim_limit() for name in limits):
            return 0.0
        if next_at is None:
            return self._config.poll_s
        return min(max((next_at - self._store.now_us()) / 1e6, 0.001), self._config.poll_s)

    async def _settle_and_claim(self, limits: Mapping[str, ClaimLimit]) -> int | None:
        """Settle and claim. Returns when the next message is due, in microseconds, or None."""
        outcomes = list(self._finished)  # held until they are settled
        is_shared_wake, self._is_shared_wake = self._is_shared_wake, False
        self._key_may_have_more = False
        if self._timer is not None:  # or it would wake the pump for nothing
            self._timer.cancel()
            self._timer = None
        claimed = await self._broker.settle_and_claim(
            outcomes, limits, suspect_allowed=self._may_claim_suspect()
        )
        del self._finished[: len(outcomes)]
        found, has_looked = bool(claimed.messages or claimed.relayed), claimed.relayed is not None
        # A pass with outcomes would have been made without the wake-up, so its look cost nothing.
        if found or (is_shared_wake and (limits or has_looked) and not outcomes):
            self._herd.looked(found=found)
        for name in limits:
            self._groups[name].more = name in claimed.more
        if not claimed.suspects or any(message.suspect for message in claimed.messages):
            self._suspects_since = None
        elif self._suspects_since is None:
            self._suspects_since = clock.monotonic()
        for name, messages in groupby(claimed.messages, key=lambda message: message.group):
            self._finished += map(give_back, self._groups[name].put(list(messages)))
        return claimed.next_at

    def _claim_limits(self) -> dict[str, ClaimLimit]:
        """What to claim, by group: nothing beside a suspect, and nothing for a full group, which
        notes that.
        """
        if any(m.suspect for group in self._groups.values() for m in group.messages()):
            return {}
        for group in self._groups.values():
            group.note_skipped()
        limits = {name: group.claim_limit() for name, group in self._groups.items()}
        return {name: limit for name, limit in limits.items() if limit is not None}

    def _may_claim_suspect(self) -> bool:
        """Whether no run waits or runs, or a suspect has waited for that for _SUSPECT_WAIT_S."""
        since, others = self._suspects_since, any(len(group) for group in self._groups.values())
        return not others or (since is not None and clock.monotonic() - since > _SUSPECT_WAIT_S)

    def _is_cancelled(self) -> bool:
        """Whether all slots are cancelled; if not, a handler has cancelled the task it runs in."""
        return self._cut_off or any(slot.cancelling() for slot in self._slots)

    def _back_off(self, error: StoreUnavailable) -> float:
        self._failures += 1
        if self._failures == 1:
            log.warning("messages wait: %s", error)
        return _BACKOFF.delay_s(self._failures)

    async def _keep_slot(self, group: _Group) -> None:
        try:
            await keep_running(lambda: self._run_slot(group), lambda: group.closed)
        finally:
            self._wake.set()

    async def _run_slot(self, group: _Group) -> None:
        """Handle runs of a group, one after the other, until the group is closed."""
        while (run := await group.take()) is not None:
            begun = clock.monotonic()
            try:
                count = await self._handle(group, run)
            except BaseException:
                group.free_slot(run)
                raise
            group.finish(run, clock.monotonic() - begun, count)
            key_may_have_more = run[0].order_key is not None and len(run) >= group.run_length()
            self._key_may_have_more |= key_may_have_more
            if (
                key_may_have_more
                or run[0].suspect
                or (group.more and group.claim_limit() is not None)
            ):
                self._wake.set()  # the pump has to claim anyway
            else:
                self._wake_after(SPACING_S)  # to settle it together with others
            # Background work gives the loop away after each run: if its handlers never wait, a long
            # backfill would delay live events. These skip it: it costs a turn of the loop.
            if run[0].priority < 0:
                await asyncio.sleep(0)

    async def _handle(self, group: _Group, run: Run) -> int:
        """Handle a run until a message has to be tried again or the role stops, and give back the
        rest.

        Returns the number of messages attempted.
        """
        before: list[Message] = []
        for count, message in enumerate(run, start=1):
            try:
                outcome = await self._attempts.attempt(group.handler, message, before)
            except asyncio.CancelledError:
                if self._cut_off:
                    self._finished += map(give_back, run[count - 1 :])
                raise
            self.handled_count += outcome.verdict is Verdict.DONE
            self.dead_count += outcome.verdict is Verdict.DEAD
            self._finished.append(outcome)
            if outcome.marked:  # so are those before it, by the same commit: EventContext._mark
                before = []
            elif outcome.verdict is Verdict.DONE:
                before.append(message)
            if count < len(run) and (group.closed or outcome.verdict not in _KEY_CONTINUES):
                self._finished += map(give_back, run[count:])
                return count
        return len(run)

    def _cut_off_all(self) -> None:
        """Cancel handlers that still run: their messages are handled again by another process."""
        self._cut_off = True
        for name, group in self._groups.items():
            if group.running:
                log_cut_off(name, len(group.running))
        for slot in self._slots:
            slot.cancel()
        asyncio.get_running_loop().call_later(CLEANUP_S, self._log_ignored_cancellation)

    def _log_ignored_cancellation(self) -> None:
        for name, group in self._groups.items():
            if group.running:
                log_ignored_cancellation(name, "it was cut off")

    async def _drain(self) -> None:
        """Wait for all slots, and then until all results are settled.

        If the store takes no writes then, it waits _SETTLE_S at most: another process reclaims the
        messages, as from a dead process, and handles them again; the mark prevents a second effect.
        """
        deadline: float | None = None
        while self._has_open_slots() or self._finished:
            self.heartbeat.touch()
            try:
                if self._finished:
                    await self._settle_and_claim({})
            except StoreUnavailable as error:
                pause_s, now = self._back_off(error), clock.monotonic()
                if not self._has_open_slots():
                    deadline = now + _SETTLE_S if deadline is None else deadline
                    if now >= deadline:
                        count = len(self._finished)
                        log.warning("the results of %d messages stay unsettled: %s", count, error)
                        return
                    pause_s = min(pause_s, deadline - now)
                await self._wake.wait(pause_s)
            if self._has_open_slots():
                await self._wake.wait(1.0)  # a slot wakes it; the time is for the heartbeat

    def _has_open_slots(self) -> bool:
        return not all(slot.done() for slot in self._slots)


class _Group:
    """The runs of one group: those that wait, and those that run in its slots.

    Runs with a priority below 0 begin when no other run waits, in a quarter of the slots (at least
    one).
    """

    def __init__(self, handler: Handler, config: EngineConfig) -> None:
        self.handler = handler
        self.concurrency = handler.concurrency or config.concurrency
        self.closed = False
        #: Whether there may be more messages: the last claim got as many as requested, or none was
        #: made since no slot was free.
        self.more = False
        #: Whether messages may have come while no slot was free.
        self._passed_over = False
        #: By `id(run)`.
        self.running: dict[int, Run] = {}
        self._waiting: deque[Run] = deque()
        #: Runs with a priority below 0: those that wait, and the number of those that run.
        self._low_waiting: deque[Run] = deque()
        self._low_running = 0
        #: One for each free slot: the end of its wait for a run.
        self._free_slots: deque[asyncio.Future[None]] = deque()
        self._batch = config.batch
        #: Mean durations of one run and of one message.
        self._run_s = 0.0
        self._message_s = 0.0

    def __len__(self) -> int:
        """Runs that wait or run."""
        return len(self._waiting) + len(self._low_waiting) + len(self.running)

    def claim_limit(self) -> ClaimLimit | None:
        """What to claim; None while no slot is free, and either nothing was left by the last claim,
        or it has more than half of the runs that it should have.

        So what comes while all slots are busy is left to a worker with a free one, as nobody knows
        how long these handlers take. If no other takes it, the next free slot does.
        """
        if self._is_skipped():
            return None
        high_running = len(self.running) - self._low_running
        high = self._room(self.concurrency, len(self._waiting) + high_running)
        if not high:
            return None
        low = 0
        if not self.handler.key and not self._waiting:
            low = self._room(
                low_priority_slots(self.concurrency), len(self._low_waiting) + self._low_running
            )
        return ClaimLimit(high, low, self.run_length())

    def note_skipped(self) -> None:
        """Before a claim: if it skips this group, the next free slot looks for messages."""
        self._passed_over |= self._is_skipped()

    def _is_skipped(self) -> bool:
        """Whether nothing is claimed: no slot is free, and the last claim left nothing."""
        return len(self.running) >= self.concurrency and not self.more

    def run_length(self) -> int:
        """The largest number of messages of a run."""
        return run_length(self._message_s, batch=self._batch) if self.handler.key else 1

    def put(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Add claimed messages, those of one key as one run. If it is closed, returns them: they
        are to be given back.
        """
        if self.closed:
            return messages
        for key, of_key in groupby(messages, key=lambda message: message.order_key):
            found = tuple(of_key)
            for run in [found] if key is not None else [(message,) for message in found]:
                (self._low_waiting if _is_low(run) else self._waiting).append(run)
                self._wake_slot()
        return ()

    async def take(self) -> Run | None:
        """Wait for the next run, for a free slot. None: the group is closed."""
        while not self.closed:
            if (run := self._next()) is not None:
                self.running[id(run)] = run
                self._low_running += _is_low(run)
                if self._low_waiting and not self._waiting:
                    self._wake_slot()  # it may have had to wait for this one to begin
                return run
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._free_slots.append(future)
            await future
        return None

    def finish(self, run: Run, duration_s: float, count: int) -> None:
        """Free the slot of a run that ended after `count` messages, and note its duration."""
        self.free_slot(run)
        self._run_s = mean_duration_s(self._run_s, duration_s)
        self._message_s = mean_duration_s(self._message_s, duration_s / count)

    def free_slot(self, run: Run) -> None:
        """Free the slot of a run, however it ended."""
        del self.running[id(run)]
        self._low_running -= _is_low(run)
        self.more |= self._passed_over
        self._passed_over = False

    def messages(self) -> Iterator[Message]:
        """The messages of all runs that wait or run."""
        for run in (*self._waiting, *self._low_waiting, *self.running.values()):
            yield from run

    def close(self) -> list[Message]:
        """Begin no more runs. Returns the messages of those that wait."""
        self.closed = True
        waiting = [message for run in (*self._waiting, *self._low_waiting) for message in run]
        self._waiting.clear()
        self._low_waiting.clear()
        while self._free_slots:
            self._wake_slot()
        return waiting

    def _room(self, slots: int, count: int) -> int:
        """The number of runs to claim for `slots`, for which `count` runs wait or run.

        0 while no slot is free and they have more than half of the runs that they should have: so
        one claim gets many.
        """
        full = prefetch_count(self._run_s, concurrency=slots, batch=self._batch)
        return full - count if count < max(full // 2 + 1, min(slots, full)) else 0

    def _next(self) -> Run | None:
        if self._waiting:
            return self._waiting.popleft()
        if self._low_waiting and self._low_running < low_priority_slots(self.concurrency):
            return self._low_waiting.popleft()
        return None

    def _wake_slot(self) -> None:
        """Wake one free slot, if there is one."""
        while self._free_slots:
            future = self._free_slots.popleft()
            if not future.done():  # else the slot was cancelled
                future.set_result(None)
                return


def _is_low(run: Run) -> bool:
    """Whether it has a priority below 0. Never for a key: its order counts before its priority."""
    return run[0].order_key is None and run[0].priority < 0
