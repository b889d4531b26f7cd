"""Priorities with a running engine: what somebody waits for passes what nobody waits for."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.integration.engine.engine import build, running
from tests.integration.engine.parts import opened, publish

from cordata.app import App
from cordata.context import Event, EventContext

COUNT = 4_000
LIVE = 5


async def test_events_pass_those_of_a_low_priority_that_were_there_before(state: Path) -> None:
    app, done = App("t"), list[str]()
    arrived: dict[str, asyncio.Event] = {}

    @app.on("thing.done")
    async def take(event: Event, ctx: EventContext) -> None:
        done.append(event.id)
        if "live" in event.headers:
            arrived.setdefault(event.id, asyncio.Event()).set()

    async with opened(state) as store:
        async with running(build(store, state, app)):
            await publish(store, COUNT, priority=-1)
            behind = []
            for _ in range(LIVE):
                (event_id,) = await publish(store, 1, headers={"live": "1"})
                begun = len(done)
                async with asyncio.timeout(120):
                    await arrived.setdefault(event_id, asyncio.Event()).wait()
                behind.append(len(done) - begun)
            left = COUNT + LIVE - len(done)
    print(f"of the others handled before each event: {behind}, then left: {left}")
    assert left > COUNT / 4
    assert max(behind) < COUNT / 4
