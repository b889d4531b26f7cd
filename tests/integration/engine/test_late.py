"""What a handler leaves behind: a task that writes after its end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.integration.engine.engine import build, running
from tests.integration.engine.parts import opened, publish, rows, until

from cordata.app import App
from cordata.context import Event, EventContext
from cordata.core.commit_guard import HandlerEnded
from cordata.store import Store, Tx


async def _states(store: Store, *states: str) -> bool:
    return [row["state"] for row in await rows(store, "messages")] == list(states)


async def write(ctx: EventContext) -> None:
    await ctx.run(lambda tx: tx.execute("add_effect", event_id=ctx.event_id, owner="", at=1))


@pytest.mark.parametrize("fails", [True, False])
async def test_late_effect_is_refused_when_its_handler_has_ended(state: Path, fails: bool) -> None:
    app, contexts = App("t"), list[EventContext]()

    @app.on("thing.done", retries=0)
    async def hasty(event: Event, ctx: EventContext) -> None:
        contexts.append(ctx)
        if fails:
            raise ValueError

    async with opened(state) as store, running(build(store, state, app)):
        await publish(store, 1)
        await until(lambda: _states(store, *(["dead"] if fails else [])))
        await until(lambda: len(contexts) == 1)
        with pytest.raises(HandlerEnded, match="after its handler has ended"):
            await write(contexts[0])
        with pytest.raises(HandlerEnded):
            async with contexts[0].transaction():
                raise AssertionError
        assert await rows(store, "effects") == []


async def test_open_transaction_is_rolled_back_when_its_handler_has_ended(state: Path) -> None:
    app, tasks, go = App("t"), list[asyncio.Task[None]](), asyncio.Event()

    @app.on("thing.done", retries=0)
    async def hasty(event: Event, ctx: EventContext) -> None:
        begun = asyncio.Event()

        async def later() -> None:
            async with ctx.transaction() as tx:
                await tx.fetch_all("effects")
                begun.set()
                await go.wait()
                await tx.execute("add_effect", event_id=event.id, owner="", at=1)

        tasks.append(asyncio.create_task(later()))
        await begun.wait()
        raise ValueError

    async with opened(state) as store, running(build(store, state, app)):
        await publish(store, 1)
        await until(lambda: _states(store, "dead"))
        go.set()
        with pytest.raises(HandlerEnded):
            await tasks[0]
        assert await rows(store, "effects") == []


async def test_outcome_waits_for_the_commit_that_is_under_way_at_the_end(state: Path) -> None:
    app, tasks = App("t"), list[asyncio.Task[None]]()

    @app.on("thing.done", retries=0)
    async def hasty(event: Event, ctx: EventContext) -> None:
        begun = asyncio.Event()

        async def unit(tx: Tx) -> None:
            begun.set()
            await tx.execute("add_effect", event_id=event.id, owner="", at=1)

        tasks.append(asyncio.create_task(ctx.run(unit)))
        await begun.wait()
        raise ValueError  # its effect is on its way

    async with opened(state) as store, running(build(store, state, app)):
        await publish(store, 20)
        await until(lambda: len(tasks) == 20)
        await asyncio.gather(*tasks)
        await until(lambda: _states(store))
        assert len(await rows(store, "effects")) == 20
