"""Subscriptions whose handler does what none should: each time the attempt counts."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.integration.engine.parts import until
from tests.integration.eventstore.ledger import deposit, opened, rows, running

from cordata.app import App
from cordata.eventstore import StoredEvent
from cordata.eventstore.inspection import Subscriptions
from cordata.store import Store, Tx
from cordata.subscription import SubscriptionContext


async def is_blocked(store: Store) -> bool:
    status = await Subscriptions(store).status("t.wild")
    return status is not None and status.state == "blocked"


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()], ids=repr
)
async def test_partition_is_blocked_when_a_unit_raises_anything(
    state: Path, error: BaseException
) -> None:
    local, attempts = App("t"), list[int]()

    @local.subscribe("account", partitions=1, retries=1)
    async def wild(event: StoredEvent, ctx: SubscriptionContext) -> None:
        attempts.append(event.attempt)

        async def unit(tx: Tx) -> None:
            row = {"position": event.position, "stream": event.stream, "version": event.version}
            await tx.execute("ledger.note", **row, owner="me", at=tx.now_us)
            raise error

        await ctx.run(unit)

    async with opened(state) as store, running(store, state, local):
        await deposit(store, "account-1", 1)
        await until(lambda: is_blocked(store))
        assert attempts == [1, 2]
        assert await rows(store, "ledger.handled") == []


async def test_partition_is_blocked_when_a_handler_cancels_itself(state: Path) -> None:
    local, attempts = App("t"), list[int]()

    @local.subscribe("account", partitions=1, retries=1)
    async def wild(event: StoredEvent, ctx: SubscriptionContext) -> None:
        attempts.append(event.attempt)
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(1)

    async with opened(state) as store, running(store, state, local):
        await deposit(store, "account-1", 1)
        await until(lambda: is_blocked(store))
        assert attempts == [1, 2]


async def test_partition_goes_on_when_a_handler_leaves_its_cancellation_behind(state: Path) -> None:
    """It strikes when the handler has ended long ago, and nothing is in hand."""
    local, handled, struck = App("t"), list[int](), asyncio.Event()

    @local.subscribe("account", partitions=1, retries=0)
    async def wild(event: StoredEvent, ctx: SubscriptionContext) -> None:
        handled.append(event.version)
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().call_later(0.05, task.cancel)
        task.add_done_callback(lambda _: struck.set())

    async with opened(state) as store, running(store, state, local):
        await deposit(store, "account-1", 1)
        await asyncio.wait_for(struck.wait(), 60)
        await deposit(store, "account-1", 1)
        await until(lambda: len(handled) == 2)
        assert not await is_blocked(store)
