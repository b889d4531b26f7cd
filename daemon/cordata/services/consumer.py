"""The consumer of one worker: claim in batches, handle side by side, settle in batches.

    pump:    sleep -> settle what is finished and claim more, in one unit -> runs of each group
    places:  run -> handler, message after message -> finished     (`concurrency` places per group)

One unit of work per pass serves all groups, so that a pass costs one commit. A run is one message,
or several of one key, which are handled one after the other.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from cordata import clock
from cordata.broker import Broker, ClaimLimit, Message, MessageId, Outcome
from cordata.broker.message import give_back
from cordata.config.sections import EngineConfig
from cordata.context import Context
from cordata.core.delivery import (
    Verdict,
    low_priority_slots,
    mean_duration_s,
    prefetch_count,
    run_length,
)
from cordata.core.retry import Backoff
from cordata.errors import StoreUnavailable
from cordata.heartbeat import Heartbeat
from cordata.log import logger, plural
from cordata.registry import Handler
from cordata.services.attempt import Attempts
from cordata.services.handler_call import Sentinel, after, log_cut_off, log_ignored_cancellation
from cordata.services.loop import SPACING_S, Pace, WakeEvent, background, wake_on

log = logger("cordata.engine")

#: While the store cannot be written.
_BACKOFF = Backoff(0.25, 5.0)
#: At the stop, time to store the last results while the store takes no writes.
_SETTLE_S = 3.0
#: Longest wait of suspect messages for this worker to finish all others.
_ALONE_S = 5.0
#: Verdicts after which the next message of a key may be handled.
_NEXT = (Verdict.DONE, Verdict.DEAD)

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
        retry_at_once: bool = False,
        cut_off_s: float | None = None,
    ) -> None:
        """`owner`: this process. `retry_at_once`: test mode, in which a failed message is
        due again at once.

        `cut_off_s` after the stop handlers that still run are cancelled, and their messages given
        back without an attempt being counted; None: never.
        """
        self.heartbeat = Heartbeat(max_age_s=30.0 + config.poll_s)
        self.handled_count = 0
        self.dead_count = 0
        self._store = ctx.store
        self._broker = broker
        self._config = config
        self._attempts = Attempts(ctx, config, owner_id=owner, retry_at_once=retry_at_once)
        self._groups = {handler.group: _Group(handler, config) for handler in handlers}
        self._wake = WakeEvent()
        self._finished: list[Outcome] = []
        self._settle_timer: asyncio.TimerHandle | None = None
        #: Places whose task runs.
        self._open = 0
        self._cut_off_s = cut_off_s
        self._cut_off = False
        #: Later messages of a key wait until a finished one is settled.
        self._hurry = False
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
        """Handle messages until `stop`, then until none is held."""
        async with (
            wake_on(self._wake, stop),
            background(self._broker.listen(list(self._groups), self._wake.set)),
            asyncio.TaskGroup() as tasks,
        ):
            sentinel = Sentinel(tasks, self._log_ignored_cancellation)
            self._attempts.ending = lambda: self._cut_off or sentinel.ending()
            places = []
            for group in self._groups.values():
                for _ in range(group.concurrency):
                    self._open += 1
                    places.append(tasks.create_task(self._place(group)))
            await self._pump(stop)
            await self._broker.stop_claiming()
            self._give_back()
            with after(self._cut_off_s, lambda: self._cut_off_all(places)):
                await self._drain()
            sentinel.dismiss()
        await self._broker.leave()

    async def _pump(self, stop: asyncio.Event) -> None:
        pace = Pace(self._store)
        while not stop.is_set():
            self.heartbeat.touch()
            full = self._hurry or any(group.more for group in self._groups.values())
            await pace.next(full=full)
            sleep_s = await self.run_once()
            if sleep_s > 0.0:
                await self._wake.wait(sleep_s)

    async def run_once(self) -> float:
        """One pass: settle and claim. Returns the seconds to sleep after it."""
        limits = self._claim_limits()
        if not limits and not self._finished:
            return self._config.poll_s
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
        outcomes, self._finished = self._finished, []
        self._hurry = False
        if self._settle_timer is not None:  # or it would wake the pump for nothing
            self._settle_timer.cancel()
            self._settle_timer = None
        try:
            claimed = await self._broker.settle_and_claim(outcomes, limits, alone=self._is_alone())
        except BaseException:
            self._finished = outcomes + self._finished
            raise
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
        """What to claim, by group: nothing beside a suspect, and nothing for a full group."""
        if any(m.suspect for group in self._groups.values() for m in group.messages()):
            return {}
        limits = {name: group.claim_limit() for name, group in self._groups.items()}
        return {name: limit for name, limit in limits.items() if limit is not None}

    def _held(self) -> int:
        return sum(len(group) for group in self._groups.values())

    def _is_alone(self) -> bool:
        """Whether a suspect may be claimed: nothing else is held, or it has waited long enough."""
        since = self._suspects_since
        return not self._held() or (since is not None and clock.monotonic() - since > _ALONE_S)

    def _back_off(self, error: StoreUnavailable) -> float:
        self._failures += 1
        if self._failures == 1:
            log.warning("messages wait: %s", error)
        return _BACKOFF.delay_s(self._failures)

    async def _place(self, group: _Group) -> None:
        try:
            while (run := await group.take(self._attempts)) is not None:
                begun = clock.monotonic()
                try:
                    count = await self._handle(group, run)
                except BaseException:
                    group.drop(run)  # nothing of it goes on
                    raise
                group.end(run, clock.monotonic() - begun, count)
                # A run that was cut off may go on as soon as it is settled.
                cut = run[0].order_key is not None and len(run) >= group.run_length()
                self._hurry = self._hurry or cut
                self._settle_soon(
                    now=cut or run[0].suspect or (group.more and group.claim_limit() is not None)
                )
                if run[0].priority < 0:
                    await asyncio.sleep(0)  # else handlers that never wait block the loop
        finally:
            self._open -= 1
            self._wake.set()

    async def _handle(self, group: _Group, run: Run) -> int:
        """Handle a run until a message fails or the role stops, and give back the rest.

        Returns the number of messages that were handled.
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
            if outcome.marked:
                before = []
            elif outcome.verdict is Verdict.DONE:
                before.append(message)
            if count < len(run) and (group.closed or outcome.verdict not in _NEXT):
                self._finished += map(give_back, run[count:])
                return count
        return len(run)

    def _settle_soon(self, *, now: bool) -> None:
        """Settle soon, together with others; `now`: at once, since the pump has to claim anyway."""
        if now:
            self._wake.set()
        elif self._settle_timer is None:
            loop = asyncio.get_running_loop()
            self._settle_timer = loop.call_later(SPACING_S, self._settle_now)

    def _settle_now(self) -> None:
        self._settle_timer = None
        self._wake.set()

    def _give_back(self) -> None:
        """Give back runs that no place has begun; each place ends after its current message."""
        for group in self._groups.values():
            self._finished += map(give_back, group.close())

    def _cut_off_all(self, places: Sequence[asyncio.Task[None]]) -> None:
        """Cancel handlers that still run: their messages are handled again by another process."""
        self._cut_off = True
        for name, group in self._groups.items():
            if group.running:
                log_cut_off(name, len(group.running))
        for place in places:
            place.cancel()

    def _log_ignored_cancellation(self) -> None:
        for name, group in self._groups.items():
            if group.running:
                log_ignored_cancellation(name, "it was cut off")

    async def _drain(self) -> None:
        """Wait until every place has ended and all results are settled, or the role's deadline.

        While the store takes no writes it waits only _SETTLE_S: another process then reclaims the
        messages, as from a dead process, and handles them again; the mark prevents a second effect.
        """
        deadline: float | None = None
        while self._open or self._finished:
            self.heartbeat.touch()
            try:
                if self._finished:
                    await self._settle_and_claim({})
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


class _Group:
    """The runs of one group: waiting ones, and those in its places.

    Runs with a priority below 0 begin when no other run waits, in at most a quarter of the places.
    """

    def __init__(self, handler: Handler, config: EngineConfig) -> None:
        self.handler = handler
        self.concurrency = handler.concurrency or config.concurrency
        self.closed = False
        #: Whether the last claim got as many messages as requested: there may be more.
        self.more = False
        #: By `id(run)`.
        self.running: dict[int, Run] = {}
        self._waiting: deque[Run] = deque()
        self._low: deque[Run] = deque()
        self._low_running = 0
        self._idle: deque[asyncio.Future[None]] = deque()
        self._batch = config.batch
        #: Mean durations of one run and of one message.
        self._run_s = 0.0
        self._mean_s = 0.0

    def __len__(self) -> int:
        """Runs that are claimed and not finished."""
        return len(self._waiting) + len(self._low) + len(self.running)

    def claim_limit(self) -> ClaimLimit | None:
        """What to claim; None while it has more than half of the messages that it should have."""
        high = self._room(self.concurrency, len(self._waiting) + self._high_running())
        if not high:
            return None
        low = 0
        if not self.handler.key and not self._waiting:
            low = self._room(
                low_priority_slots(self.concurrency), len(self._low) + self._low_running
            )
        return ClaimLimit(high, low, self.run_length())

    def run_length(self) -> int:
        """The largest number of messages of a run."""
        return run_length(self._mean_s, batch=self._batch) if self.handler.key else 1

    def put(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Add claimed messages, those of one key as one run. Returns them if it is closed."""
        if self.closed:
            return messages
        for key, of_key in groupby(messages, key=lambda message: message.order_key):
            found = tuple(of_key)
            for run in [found] if key is not None else [(message,) for message in found]:
                (self._low if key is None and run[0].priority < 0 else self._waiting).append(run)
                self._wake()
        return ()

    async def take(self, attempts: Attempts) -> Run | None:
        """Wait for the next run, for a free place. None: the group is closed."""
        while not self.closed:
            if (run := self._next()) is not None:
                self.running[id(run)] = run
                self._low_running += _is_low(run)
                if self._low and not self._waiting:
                    self._wake()  # it may have had to wait for this one to begin
                return run
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle.append(future)
            try:
                await future
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or attempts.ending():
                    raise
                task.uncancel()  # by something that a handler left behind
        return None

    def end(self, run: Run, duration_s: float, count: int) -> None:
        """A run left its place after `count` messages."""
        self.drop(run)
        self._run_s = mean_duration_s(self._run_s, (duration_s,))
        self._mean_s = mean_duration_s(self._mean_s, (duration_s / count,))

    def drop(self, run: Run) -> None:
        """A run left its place."""
        del self.running[id(run)]
        self._low_running -= _is_low(run)

    def messages(self) -> Iterator[Message]:
        """All messages that are claimed and not finished."""
        for run in (*self._waiting, *self._low, *self.running.values()):
            yield from run

    def close(self) -> list[Message]:
        """Begin no more runs. Returns the messages of those that wait."""
        self.closed = True
        waiting = [message for run in (*self._waiting, *self._low) for message in run]
        self._waiting.clear()
        self._low.clear()
        while self._idle:
            self._wake()
        return waiting

    def _room(self, places: int, held: int) -> int:
        full = prefetch_count(self._run_s, concurrency=places, batch=self._batch)
        return full - held if held <= full // 2 else 0

    def _high_running(self) -> int:
        return len(self.running) - self._low_running

    def _next(self) -> Run | None:
        if self._waiting:
            return self._waiting.popleft()
        if self._low and self._low_running < low_priority_slots(self.concurrency):
            return self._low.popleft()
        return None

    def _wake(self) -> None:
        while self._idle:
            future = self._idle.popleft()
            if not future.done():  # else its place was cancelled
                future.set_result(None)
                return


def _is_low(run: Run) -> bool:
    return run[0].order_key is None and run[0].priority < 0
