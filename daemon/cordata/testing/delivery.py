"""Runs event handlers one message at a time, with the code of a worker."""

from __future__ import annotations

import json

import msgspec

from cordata.app import App
from cordata.broker import ClaimLimit, Message, Outcome, give_back
from cordata.broker.group import Group, catch_up, register
from cordata.config.sections import EngineConfig
from cordata.context import Context, Event, EventContext
from cordata.context_factory import make_queue
from cordata.core.message_state import Verdict
from cordata.registry import Handler
from cordata.services.attempt import Attempts
from cordata.testing.failure import Failure, FailureRecorder

OWNER = "test"


class Delivery:
    """The engine of one worker, run step by step."""

    def __init__(self, ctx: Context, app: App, config: EngineConfig) -> None:
        self._store = ctx.store
        self._queue = make_queue(ctx.store, app.handlers, config, owner=OWNER)
        self._attempts = Attempts(ctx, config, owner_id=OWNER)
        self._failures = FailureRecorder()
        self._handlers = {one.group: self._watched(one) for one in app.handlers}

    async def register(self) -> None:
        """Register the consumer groups, as the primary does before READY."""
        groups = [Group(one.group, one.type, one.key) for one in self._handlers.values()]
        await catch_up(self._store, await register(self._store, groups))

    async def step(self) -> tuple[int, Failure | None]:
        """Handle at most one message of each group.

        Returns the number of claimed messages, and the failure that ended the step: messages that
        were claimed after it are given back for the next step.
        """
        wanted = dict.fromkeys(self._handlers, ClaimLimit(count=1, low=1))
        claimed = (await self._queue.settle_and_claim([], wanted, suspect_allowed=True)).messages
        outcomes: list[Outcome] = []
        failure: Failure | None = None
        for number, message in enumerate(claimed, start=1):
            outcome, failure = await self._attempt(message)
            outcomes.append(outcome)
            if failure is not None:
                outcomes += map(give_back, claimed[number:])
                break
        if outcomes:
            await self._queue.settle_and_claim(outcomes, {})
        return len(claimed), failure

    async def next_at(self) -> int | None:
        """When the next waiting message is due, in microseconds; None: no message waits."""
        groups = json.dumps(list(self._handlers))

        row = await self._store.read(
            lambda tx: tx.fetch_one("testing.next_at", groups=groups, now_us=tx.now_us)
        )
        return None if row is None else row["next_at"]

    async def _attempt(self, message: Message) -> tuple[Outcome, Failure | None]:
        handler = self._handlers[message.group]
        self._failures.clear()
        outcome = await self._attempts.attempt(handler, message)
        if outcome.verdict is Verdict.DONE:
            return outcome, None
        return outcome, self._failures.failure(message.group, handler.timeout_s)

    def _watched(self, handler: Handler) -> Handler:
        """The handler, with a function that records what the original raises."""
        function = handler.function

        async def watched(event: Event, ctx: EventContext) -> None:
            with self._failures.over(event):
                await function(event, ctx)

        return msgspec.structs.replace(handler, function=watched)
