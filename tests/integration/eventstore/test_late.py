"""What a subscription's handler leaves behind: a task that writes after its end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.integration.engine.parts import until
from tests.integration.eventstore.ledger import deposit, opened, rows, running

from cordata.app import App
from cordata.core.commit_guard import HandlerEnded
from cordata.eventstore import StoredEvent
from cordata.eventstore.inspection import Subscriptions
from cordata.store import Store, Tx
from cordata.subscription import SubscriptionContext


async def is_blocked(store: Store) -> bool:
    status = await Subscriptions(store).status("t.hasty")
    return status is not None and status.state == "blocked"


@pytest.mark.parametrize("within", [True, False], ids=["open_transaction", "saved_context"])
async def test_late_effect_is_refused_when_its_partition_is_blocked_already(
    state: Path, within: bool
) -> None:
    local, tasks, go = App("t"), list[asyncio.Task[None]](), asyncio.Event()

    @local.subscribe("account", partitions=1, retries=0)
    async def hasty(event: StoredEvent, ctx: SubscriptionContext) -> None:
        begun = asyncio.Event()

        async def later() -> None:
            if not within:
                begun.set()
                await go.wait()
            async with ctx.transaction() as tx:
                begun.set()
                await go.wait()
                await note(tx, event)

        tasks.append(asyncio.create_task(later()))
        await begun.wait()
        raise ValueError

    async with opened(state) as store, running(store, state, local):
        await deposit(store, "account-1", 1)
        await until(lambda: is_blocked(store))
        go.set()
        with pytest.raises(HandlerEnded):
            await tasks[0]
        assert await is_blocked(store)
        assert await rows(store, "ledger.handled") == []


async def test_outcome_waits_for_the_commit_that_is_under_way_at_the_end(state: Path) -> None:
    local, tasks = App("t"), list[asyncio.Task[None]]()

    @local.subscribe("account", partitions=4, retries=0)
    async def hasty(event: StoredEvent, ctx: SubscriptionContext) -> None:
        tasks.append(asyncio.create_task(ctx.run(lambda tx: note(tx, event))))
        await asyncio.sleep(0)
        raise ValueError  # its effect is on its way

    async with opened(state) as store, running(store, state, local):
        for number in range(8):
            await deposit(store, f"account-{number}", 1)
        await until(lambda: all_handled(store, 8))
        assert not await is_blocked(store)


async def all_handled(store: Store, count: int) -> bool:
    return len(await rows(store, "ledger.handled")) == count


async def note(tx: Tx, event: StoredEvent) -> None:
    row = {"position": event.position, "stream": event.stream, "version": event.version}
    await tx.execute("ledger.note", **row, owner="me", at=tx.now_us)
