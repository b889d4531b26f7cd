"""What one attempt at one message gives the handler."""

from __future__ import annotations

from typing import cast

import pytest
from msgspec.structs import fields, replace

from cordata.broker import Message
from cordata.config.sections import EngineConfig
from cordata.context import Context, Event, EventContext
from cordata.core.message_state import Verdict
from cordata.errors import ReadTimeout
from cordata.log import request_id
from cordata.registry import Handler, HandlerFunction
from cordata.services.attempt import Attempts
from cordata.store import Chain, Store
from cordata.vault import Vault

MESSAGE = Message(
    group="shop.note",
    event_id="e1",
    type="order.paid",
    key=None,
    priority=0,
    payload='{"order": 7}',
    headers="{}",
    created_at=0,
    attempt=1,
    claim=7,
)


class Idle:
    """All that an attempt without a transaction asks a store for."""

    def now_us(self) -> int:
        return 5


def handler_of(function: HandlerFunction) -> Handler:
    return Handler(
        type="order.paid",
        group="shop.note",
        function=function,
        retries=0,
        concurrency=None,
        timeout_s=60.0,
    )


async def test_handler_gets_the_whole_context_of_its_process() -> None:
    ctx = Context(
        store=cast(Store, Idle()),
        vault=Vault(None),
        settings={"shop": 1},
        chains=(Chain("shop", "shop.sql"),),
    )
    got: list[EventContext] = []

    async def note(event: Event, ctx: EventContext) -> None:
        got.append(ctx)

    attempts = Attempts(ctx, EngineConfig(), owner_id="worker-0")
    outcome = await attempts.attempt(handler_of(note), MESSAGE)
    assert outcome.verdict is Verdict.DONE
    assert (got[0].group, got[0].event_id) == ("shop.note", "e1")
    for field in fields(Context):
        assert getattr(got[0], field.name) is getattr(ctx, field.name), field.name


@pytest.mark.parametrize(
    "damaged",
    [
        replace(MESSAGE, headers="{"),
        replace(MESSAGE, headers="[]"),
        replace(MESSAGE, payload=""),
    ],
)
async def test_message_is_dead_and_nobody_else_hurt_when_its_row_is_damaged(
    damaged: Message,
) -> None:
    async def note(event: Event, ctx: EventContext) -> None:
        raise AssertionError

    ctx = Context(store=cast(Store, Idle()), vault=Vault(None))
    attempts = Attempts(ctx, EngineConfig(), owner_id="worker-0")
    assert (await attempts.attempt(handler_of(note), damaged)).verdict is Verdict.DEAD
    assert request_id.get() == ""


async def test_attempt_counts_when_a_read_of_the_handler_took_too_long() -> None:
    async def note(event: Event, ctx: EventContext) -> None:
        raise ReadTimeout("a read took longer than 30 s")

    ctx = Context(store=cast(Store, Idle()), vault=Vault(None))
    attempts = Attempts(ctx, EngineConfig(), owner_id="worker-0")
    outcome = await attempts.attempt(handler_of(note), MESSAGE)
    assert outcome.verdict is Verdict.DEAD
