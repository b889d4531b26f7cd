"""One partition of a subscription in this process: its events one after the other.

                ┌───────── failed: again after a pause, later events wait ────┐
                v                                                             │
queue ──> attempt: the handler is called ──> handled: the position moves on   │
                └──> error ──> attempts + 1, stored ──────────────────────────┤
                                                retries used up: blocked, or dead letter
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from cordata import clock, events
from cordata.context import Context, derive_context
from cordata.core.commit_guard import CommitGuard, CommittedTwice
from cordata.core.message_state import (
    DIED,
    Failure,
    Verdict,
    add_failure,
    after_failure,
    error_text,
    is_permanent,
    is_unavailable,
)
from cordata.core.retry import STORE_UNAVAILABLE_ATTEMPT, Backoff
from cordata.errors import AlreadySeen, PartitionLost, StoreUnavailable
from cordata.eventstore import StoredEvent
from cordata.eventstore.partition import Partitions, PartitionState
from cordata.eventstore.record import stored
from cordata.log import error_places, error_summary, fields, logger
from cordata.metrics.process import Outcomes
from cordata.services.handler_call import EventAttempt, keep_running
from cordata.services.loop import WakeEvent
from cordata.services.subscription.crash import CrashedAttempts, RunningAttempts
from cordata.store import Row
from cordata.subscription import Subscription, SubscriptionContext

log = logger("cordata.engine")

#: How long it waits for the wake event while nothing is due.
_IDLE_S = 3600.0
#: Between checks whether the lease is renewed.
_LEASE_S = 0.05


@dataclass(slots=True)
class Counts:
    """What became of the events that this process got."""

    handled: int = 0
    #: Given up, or the event that blocks its partition.
    given_up: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """The parts that all partitions of a process share."""

    ctx: Context
    partitions: Partitions
    process_id: str
    backoff: Backoff
    running: RunningAttempts
    crashed: CrashedAttempts
    #: Whether the lease is valid, so that no other process may claim the partitions.
    is_leased: Callable[[], bool]
    #: Test mode: a failed event is due again at once.
    retry_at_once: bool
    #: Where attempts are counted, by subscription.
    metrics: Mapping[str, Outcomes] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)
    #: Called after each event, and when a partition's task has ended.
    on_event_end: Callable[[PartitionRunner], None]


class PartitionRunner:
    """One partition, from its claim to its release."""

    def __init__(
        self, subscription: Subscription, state: PartitionState, shared: Dependencies
    ) -> None:
        self.subscription = subscription
        self.claim = state.claim
        self.number = state.partition
        self.queue: deque[Row] = deque()
        self.stopping = False
        #: Another process owns the partition: it is not to be released.
        self.lost = False
        self.blocked = False
        #: Events up to here are in the queue, running, or handled.
        self.read_to = 0
        #: When this process last wrote the partition's row, in the store's time.
        self.written_at = 0
        #: An event is being handled.
        self.busy = False
        self._shared = shared
        self._wake = WakeEvent()
        #: The task of `run`; handlers run in tasks below it.
        self._task: asyncio.Task[object] | None = None
        self.restart(state)

    def restart(self, state: PartitionState) -> None:
        """Begin at the stored position, with the stored failures."""
        self.queue.clear()
        self.read_to = self._done = self.stored = state.position
        self.blocked = state.blocked_at is not None
        self._failing, self._attempts = state.failing, state.attempts
        self._history = state.history
        #: Type and place of the last error, for the log; "": another process had it.
        self._last_error = ""
        self._failing_due_at = 0 if self._shared.retry_at_once else state.next_at or 0
        self._pause_until = 0
        self._wake.set()

    @property
    def position(self) -> int:
        """Everything up to here is handled."""
        idle = not (self.queue or self.busy)
        return max(self._done, self.read_to) if idle and not self.blocked else self._done

    @property
    def is_unstored(self) -> bool:
        """Whether events were handled whose position is not stored."""
        return self._done > self.stored

    @property
    def is_waiting(self) -> bool:
        """Whether it takes no more events now: blocked, stopping, or its first event fails."""
        return self.blocked or self.stopping or self._is_failing_first

    @property
    def due_at(self) -> int | None:
        """When its first event is due, in microseconds (0: at once); None: no event, or blocked."""
        if self.blocked or not self.queue:
            return None
        return self._failing_due_at if self._is_failing_first else self._pause_until

    @property
    def _is_failing_first(self) -> bool:
        return bool(self.queue) and self.queue[0]["position"] == self._failing

    def push(self, row: Row) -> None:
        """Add an event to the queue, in order."""
        self.queue.append(row)
        self._wake.set()

    def stop(self) -> None:
        """End after the current event."""
        self.stopping = True
        self._wake.set()

    def lose(self) -> None:
        """End without releasing the partition: another process owns it."""
        self.lost = True
        self.stop()

    async def run(self) -> None:
        """Handle events until stopped, in an inner task: a handler may cancel that one."""
        self._task = asyncio.current_task()
        await keep_running(self._handle_all, lambda: self.stopping)

    async def handle_next(self) -> None:
        """Handle the first event of the queue, and act on the result."""
        row = self.queue[0]
        position = row["position"]
        attempts = self._attempts if position == self._failing else 0
        event = stored(row, attempt=attempts + 1)
        if crashed := self._shared.crashed.find(self.claim, position, event.attempt):
            if await self._store_failure(position, DIED, permanent=False):
                self._shared.crashed.counted(self.claim, crashed)
            return
        one = self.subscription
        with EventAttempt(
            event.headers,
            f"{one.category}:{position}",
            source=one.category,
            name=one.name,
            number=event.attempt,
        ) as attempt:
            await self._handle(event, attempt)

    async def _handle(self, event: StoredEvent, attempt: EventAttempt) -> None:
        position = event.position
        slot = self._shared.running.begin(self.claim, position, event.attempt)
        begun = clock.monotonic()
        try:
            error, committed = await self._call(event, attempt)
        except asyncio.CancelledError:
            # Otherwise the process dies, perhaps because of this event: the record stays.
            if self.stopping or not self._is_cancelled():
                self._shared.running.end(slot)
            raise
        self._shared.running.end(slot)
        verdict = self._verdict_of(event, error, committed=committed)
        if (metrics := self._shared.metrics.get(self.subscription.name)) is not None:
            metrics.count(verdict.value, clock.monotonic() - begun)
        if error is None or verdict is Verdict.DONE:
            if error is not None:
                self._log_error(event, error, " after its commit, which counts")
            self._shared.counts.handled += 1
            self._move_on(position, committed=committed)
        elif verdict is Verdict.GIVEN_BACK:
            self.lose()
        elif verdict is Verdict.DEFER:
            log.warning("%s waits for the store: %s", self.subscription.name, error)
            self._pause_for_store()
        else:
            self._log_error(event, error, "")
            permanent = is_permanent(error)
            await self._store_failure(
                position, error_text(error), permanent=permanent, committed=committed
            )

    def _verdict_of(
        self, event: StoredEvent, error: BaseException | None, *, committed: bool
    ) -> Verdict:
        if error is None or (committed and not isinstance(error, CommittedTwice)):
            return Verdict.DONE
        if isinstance(error, PartitionLost):
            return Verdict.GIVEN_BACK
        if is_unavailable(error):
            return Verdict.DEFER
        retries = self.subscription.retries
        return after_failure(event.attempt, retries=retries, permanent=is_permanent(error))

    async def _handle_all(self) -> None:
        while not self.stopping:
            wait_s = self._wait_s()
            if wait_s > 0.0:
                await self._wake.wait(wait_s)
                continue
            self.busy = True
            try:
                await self.handle_next()
            finally:
                self.busy = False
            self._shared.on_event_end(self)

    def _wait_s(self) -> float:
        due_at = self.due_at
        if due_at is None:
            return _IDLE_S
        if not self._shared.is_leased():
            return _LEASE_S
        return (due_at - self._shared.ctx.now_us()) / 1e6 if due_at else 0.0

    def _is_cancelled(self) -> bool:
        """Whether the partition's task is cancelled; if not, the handler has cancelled itself."""
        return self._task is None or self._task.cancelling() > 0

    async def _call(
        self, event: StoredEvent, attempt: EventAttempt
    ) -> tuple[BaseException | None, bool]:
        """Call the handler. Returns its error, and whether effect and position are committed.

        Raises only CancelledError, when the partition's task is cancelled.
        """
        one, guard = self.subscription, CommitGuard()
        ctx = derive_context(
            self._shared.ctx,
            SubscriptionContext,
            subscription=one.name,
            position=event.position,
            _claim=self.claim,
            _guard=guard,
        )
        error = await attempt.call(
            one.function,
            event,
            ctx,
            guard=guard,
            timeout_s=one.timeout_s,
            is_cancelled=self._is_cancelled,
        )
        if isinstance(error, AlreadySeen) and not ctx.committed:
            return None, True
        return error, ctx.committed

    def _move_on(self, position: int, *, committed: bool) -> None:
        """Move the position to an event that is handled."""
        self.queue.popleft()
        self._done = position
        if committed:
            self.stored = position
        self._pause_until = 0
        if self._failing is not None and self._failing <= position:
            if not committed:
                self.stored = -1  # its failures are to be wiped out, too
            self._failing, self._attempts, self._history, self._failing_due_at = None, 0, None, 0

    async def _store_failure(
        self, position: int, error: str, *, permanent: bool, committed: bool = False
    ) -> bool:
        """Count the attempt, and store the verdict. Returns whether it is stored.

        `committed`: the event has an effect, and its position is stored.
        """
        if self._failing != position:
            self._failing, self._attempts, self._history = position, 0, None
        self._attempts += 1
        verdict = after_failure(
            self._attempts, retries=self.subscription.retries, permanent=permanent
        )
        failure = Failure(
            attempt=self._attempts,
            at=self._shared.ctx.now_us(),
            owner=self._shared.process_id,
            error=error,
        )
        self._history = add_failure(self._history, failure)
        while True:
            try:
                await self._store_verdict(position, verdict, committed=committed)
            except StoreUnavailable:
                if self.stopping:
                    return False
                await self._wake.wait(self._shared.backoff.delay_s(STORE_UNAVAILABLE_ATTEMPT))
            except AlreadySeen:  # an attempt that timed out has committed after all
                self._move_on(position, committed=True)
                return True
            except PartitionLost:
                self.lose()
                return False
            else:
                self.written_at = self._shared.ctx.now_us()
                return True

    async def _store_verdict(self, position: int, verdict: Verdict, *, committed: bool) -> None:
        partitions, history = self._shared.partitions, self._history or ""
        if verdict is Verdict.DEAD and (committed or self.subscription.on_error == "dead"):
            await partitions.give_up(
                self.claim,
                position,
                attempts=self._attempts,
                history=history,
                is_stored=committed,
            )
            self._log_given_up(position, events.SUBSCRIPTION_DEAD, "it is a dead letter")
            self._move_on(position, committed=True)
            return
        blocked = verdict is Verdict.DEAD
        backoff = self._shared.backoff
        delay_s = 0.0 if self._shared.retry_at_once else backoff.delay_s(self._attempts)
        await partitions.fail(
            self.claim,
            position,
            attempts=self._attempts,
            history=history,
            delay_us=int(delay_s * 1e6),
            blocked=blocked,
        )
        if blocked:
            self.blocked = True
            self.queue.clear()
            self.read_to = self._done
            self._log_given_up(
                position,
                events.SUBSCRIPTION_BLOCKED,
                f"partition {self.number} is blocked until `cordata subscriptions resume`",
            )
        else:
            self._failing_due_at = self._shared.ctx.now_us() + int(delay_s * 1e6)

    def _pause_for_store(self) -> None:
        delay_s = self._shared.backoff.delay_s(STORE_UNAVAILABLE_ATTEMPT)
        at = self._shared.ctx.now_us() + int(delay_s * 1e6)
        self._pause_until = self._failing_due_at = at

    def _log_error(self, event: StoredEvent, error: BaseException, when: str) -> None:
        """Logs type and place of the error. Its text may quote the payload: only the row has it."""
        self._last_error = f" with {error_summary(error)} at {error_places(error)}"
        log.warning(
            "%s: attempt %d of %d at event %d failed%s%s",
            self.subscription.name,
            event.attempt,
            self.subscription.retries + 1,
            event.position,
            when,
            self._last_error,
            extra=self._fields(event.position),
        )

    def _log_given_up(self, position: int, message_id: str, outcome: str) -> None:
        self._shared.counts.given_up += 1
        log.error(
            "%s: event %d failed %d times%s; %s",
            self.subscription.name,
            position,
            self._attempts,
            self._last_error,
            outcome,
            extra=self._fields(position, message_id),
        )

    def _fields(self, position: int, message_id: str = "") -> dict[str, object]:
        return fields(
            message_id,
            subscription=self.subscription.name,
            partition=self.number,
            position=position,
        )
