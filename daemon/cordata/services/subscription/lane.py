"""A lane: one partition in the hands of this process, its events one after the other."""

from __future__ import annotations

import asyncio
import random
from collections import deque

from cordata import events
from cordata.core.delivery import (
    DIED,
    Failure,
    Verdict,
    add_failure,
    after_failure,
    error_text,
    is_permanent,
)
from cordata.core.retry import next_delay_s
from cordata.errors import AlreadySeen, PartitionLost, StoreUnavailable
from cordata.eventstore import Standing, StoredEvent
from cordata.eventstore.record import stored
from cordata.log import fields, frames, logger, what
from cordata.services.loop import WakeEvent
from cordata.services.subscription.attempt import Ending, attempt
from cordata.services.subscription.deaths import attempt_mark
from cordata.services.subscription.surroundings import Surroundings
from cordata.store import Row
from cordata.subscription import Subscription

log = logger("cordata.engine")

#: Nothing to wait for but the wake event.
_IDLE_S = 3600.0
#: Between looks whether the lease is renewed.
_LEASE_S = 0.05
#: A store that is away gets pauses as after so many failures.
_AWAY_AS_ATTEMPT = 3


class Lane:
    """One partition, from its claim to its release."""

    def __init__(
        self, subscription: Subscription, standing: Standing, around: Surroundings
    ) -> None:
        self.subscription = subscription
        self.claim = standing.claim
        self.number = standing.partition
        self.queue: deque[Row] = deque()
        self.stopping = False
        #: The partition is another's; nothing is to be given back.
        self.lost = False
        self.blocked = False
        #: Events up to here are in the queue, in hand, or handled.
        self.read_to = 0
        #: The time of the last word that the table has of us.
        self.written_at = 0
        self._around = around
        self._wake = WakeEvent()
        #: Of `run`: nothing of a handler's is in it.
        self._task: asyncio.Task[object] | None = None
        #: An event is in hand.
        self.busy = False
        self.handled_count = 0
        self.take(standing)

    def take(self, standing: Standing) -> None:
        """Begin where the table says."""
        self.queue.clear()
        self.read_to = self._done = self.stored = standing.position
        self.blocked = standing.blocked_at is not None
        self._failing, self._attempts = standing.failing, standing.attempts
        self._history = standing.history
        self._failing_due_at = 0 if self._around.hurried else standing.next_at or 0
        self._pause_until = 0
        self._wake.set()

    @property
    def position(self) -> int:
        """Everything up to here is handled."""
        idle = not (self.queue or self.busy)
        return max(self._done, self.read_to) if idle and not self.blocked else self._done

    @property
    def unstored(self) -> bool:
        """Whether events were handled whose position is not stored."""
        return self._done > self.stored

    @property
    def waits(self) -> bool:
        """Whether it is not to be given more now: an event fails, or an operator is awaited."""
        return self.blocked or self.stopping or self._failing_first

    @property
    def _failing_first(self) -> bool:
        return bool(self.queue) and self.queue[0]["position"] == self._failing

    def push(self, row: Row) -> None:
        """One more event, in order."""
        self.queue.append(row)
        self._wake.set()

    def stop(self) -> None:
        """End after the event in hand."""
        self.stopping = True
        self._wake.set()

    def lose(self) -> None:
        """The partition is another's: end, and give nothing back."""
        self.lost = True
        self.stop()

    async def run(self) -> None:
        """Handle until stopped, in a task below: when a handler cancels that, it gets another."""
        self._task = asyncio.current_task()
        while not self.stopping:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._work())

    def _ending(self) -> bool:
        """Whether the lane is cancelled, and not only a handler by itself."""
        return self._task is None or self._task.cancelling() > 0

    async def _work(self) -> None:
        while not self.stopping:
            wait_s = self._wait_s()
            if wait_s > 0.0:
                await self._wake.wait(wait_s)
                continue
            self.busy = True
            try:
                await self._handle(self.queue[0])
            finally:
                self.busy = False
            self._around.ended(self)

    def _wait_s(self) -> float:
        if self.blocked or not self.queue:
            return _IDLE_S
        if not self._around.leased():
            return _LEASE_S
        due_at = self._failing_due_at if self._failing_first else self._pause_until
        return (due_at - self._around.ctx.now_us()) / 1e6 if due_at else 0.0

    async def _handle(self, row: Row) -> None:
        position = row["position"]
        attempts = self._attempts if position == self._failing else 0
        event = stored(row, attempt=attempts + 1)
        if self._around.deaths.count(self.claim, position, event.attempt):
            await self._failed(position, DIED, permanent=False)
            return
        slot = self._around.owner.begin(attempt_mark(self.claim, position, event.attempt))
        try:
            told = await attempt(
                self._around.ctx, self.subscription, self.claim, event, ending=self._ending
            )
        except asyncio.CancelledError:
            if self.stopping or not self._ending():  # else it dies, perhaps of this very event
                self._around.owner.end(slot)
            raise
        self._around.owner.end(slot)
        if told.ending is Ending.LOST:
            self.lose()
        elif told.ending is Ending.AWAY:
            log.warning("%s waits for the store: %s", self.subscription.name, told.error)
            self._wait_for_store()
        elif told.ending is Ending.FAILED:
            assert told.error is not None
            self._say(event, told.error, "")
            text, permanent = error_text(told.error), is_permanent(told.error)
            await self._failed(position, text, permanent=permanent)
        else:
            if told.error is not None:
                self._say(event, told.error, " after its commit, which counts")
            self.handled_count += 1
            self._over(position, committed=told.ending is Ending.COMMITTED)

    def _over(self, position: int, *, committed: bool) -> None:
        """The event is handled; the next one may come."""
        self.queue.popleft()
        self._done = position
        if committed:
            self.stored = position
        self._pause_until = 0
        if self._failing is not None and self._failing <= position:
            if not committed:
                self.stored = -1  # its failures are to be wiped out, too
            self._failing, self._attempts, self._history, self._failing_due_at = None, 0, None, 0

    async def _failed(self, position: int, error: str, *, permanent: bool) -> None:
        """Count the attempt, and write down what follows."""
        if self._failing != position:
            self._failing, self._attempts, self._history = position, 0, None
        self._attempts += 1
        verdict = after_failure(
            self._attempts, retries=self.subscription.retries, permanent=permanent
        )
        failure = Failure(
            attempt=self._attempts,
            at=self._around.ctx.now_us(),
            owner=self._around.owner.id,
            error=error,
        )
        self._history = add_failure(self._history, failure)
        while not self.stopping:
            try:
                await self._write(position, verdict)
            except StoreUnavailable:
                await self._wake.wait(self._delay_s(_AWAY_AS_ATTEMPT))
            except AlreadySeen:  # an attempt that timed out has committed after all
                self._over(position, committed=True)
                return
            except PartitionLost:
                self.lose()
                return
            else:
                self.written_at = self._around.ctx.now_us()
                return

    async def _write(self, position: int, verdict: Verdict) -> None:
        partitions, history = self._around.partitions, self._history or ""
        if verdict is Verdict.DEAD and self.subscription.on_error == "dead":
            await partitions.bury(self.claim, position, attempts=self._attempts, history=history)
            self._say_given_up(position, events.SUBSCRIPTION_DEAD, "it is a dead letter")
            self._over(position, committed=True)
            return
        blocked = verdict is Verdict.DEAD
        delay_s = 0.0 if self._around.hurried else self._delay_s(self._attempts)
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
            self._say_given_up(
                position,
                events.SUBSCRIPTION_BLOCKED,
                f"partition {self.number} is blocked until `cordata subscriptions resume`",
            )
        else:
            self._failing_due_at = self._around.ctx.now_us() + int(delay_s * 1e6)

    def _wait_for_store(self) -> None:
        at = self._around.ctx.now_us() + int(self._delay_s(_AWAY_AS_ATTEMPT) * 1e6)
        self._pause_until = self._failing_due_at = at

    def _delay_s(self, attempt: int) -> float:
        return next_delay_s(
            attempt,
            random.random(),
            first_s=self._around.config.retry_min_s,
            longest_s=self._around.config.retry_max_s,
        )

    def _say(self, event: StoredEvent, error: BaseException, when: str) -> None:
        """Kind and place of an error; its text may quote the payload, so only the row has it."""
        log.warning(
            "%s: attempt %d of %d at event %d failed%s with %s at %s",
            self.subscription.name,
            event.attempt,
            self.subscription.retries + 1,
            event.position,
            when,
            what(error),
            frames(error.__traceback__),
            extra=self._fields(event.position),
        )

    def _say_given_up(self, position: int, message_id: str, outcome: str) -> None:
        self._around.gave_up()
        log.error(
            "%s: event %d failed %d times; %s",
            self.subscription.name,
            position,
            self._attempts,
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
