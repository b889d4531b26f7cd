"""Relay and handlers, one message after the other, by the code that a worker runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from cordata.app import App
from cordata.broker import Message, Outcome, StoreBroker, Want
from cordata.config.sections import EngineConfig
from cordata.context import Context, EventContext
from cordata.core.delivery import Verdict
from cordata.core.event import Event
from cordata.registry import Handler
from cordata.services.handling import Handling
from cordata.testing.failure import Failure, FailureRecorder

OWNER = "test"
_RELAYED = 100


class Delivery:
    """The engine of one worker, a step at a time."""

    def __init__(self, ctx: Context, app: App, config: EngineConfig) -> None:
        self._broker = StoreBroker(ctx.store, claim_timeout_s=config.claim_timeout_s)
        self._handling = Handling(ctx, config, owner_id=OWNER)
        self._failures = FailureRecorder()
        self._handlers = {one.group: self._watched(one) for one in app.handlers}

    async def register(self) -> None:
        """Make the groups known, as the primary does before it is ready."""
        await self._broker.register(
            {one.group: one.type for one in self._handlers.values()},
            keyed={one.group for one in self._handlers.values() if one.key},
        )

    async def step(self) -> tuple[int, Failure | None]:
        """Relay what is due and handle at most one message of each group.

        Returns how many were handled, and the failure that ended the step: what was claimed beside
        it waits for the next one.
        """
        while (await self._broker.relay(_RELAYED)).published:
            pass
        wanted = dict.fromkeys(self._handlers, Want(live=1, backfill=1))
        claimed = (await self._broker.exchange(OWNER, [], wanted)).messages
        outcomes: list[Outcome] = []
        failure: Failure | None = None
        for number, message in enumerate(claimed, start=1):
            outcome, failure = await self._attempt(message)
            outcomes.append(outcome)
            if failure is not None:
                outcomes += _untouched(claimed[number:])
                break
        if outcomes:
            await self._broker.exchange(OWNER, outcomes, {})
        return len(claimed), failure

    async def next_at(self) -> int | None:
        """When the next entry or message is due, in microseconds; None: nothing waits."""
        due = (await self._broker.due_at(self._handlers)).values()
        moments = [at for one in due if (at := one.first()) is not None]
        if (entry := await self._broker.outbox_due_at()) is not None:
            moments.append(entry)
        return min(moments, default=None)

    async def _attempt(self, message: Message) -> tuple[Outcome, Failure | None]:
        handler = self._handlers[message.group]
        self._failures.clear()
        outcome = await self._handling.attempt(handler, message)
        if outcome.verdict is Verdict.DONE:
            return outcome, None
        return outcome, self._failures.failure(message.group, handler.timeout_s)

    def _watched(self, handler: Handler) -> Handler:
        """The same, but what its function raises is noted on its way."""
        function = handler.function

        async def watched(event: Event, ctx: EventContext) -> None:
            with self._failures.over(event):
                await function(event, ctx)

        return dataclasses.replace(handler, function=watched)


def _untouched(messages: Sequence[Message]) -> list[Outcome]:
    return [
        Outcome(group=one.group, id=one.id, verdict=Verdict.BACK, order_key=one.order_key)
        for one in messages
    ]
