"""PostgreSQL dies under the engine: what was not on disk yet is done again, or was settled."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from pathlib import Path

from tests.integration.engine.engine import build, running
from tests.integration.engine.parts import opened, publish, rows, until
from tests.integration.engine.stores import use
from tests.servers.postgres import PostgresServer

from cordata.app import App
from cordata.config.sections import EngineConfig
from cordata.context import EventContext
from cordata.core.event import Event
from cordata.errors import StoreUnavailable
from cordata.store import Store

_CONFIG = EngineConfig(retry_min_s=0.05, retry_max_s=0.2, claim_timeout_s=3.0)


def make_app() -> App:
    """Two groups with an effect each, one that keeps the order of keys."""
    app = App("t")

    @app.on("thing.done", concurrency=4)
    async def free(event: Event, ctx: EventContext) -> None:
        await asyncio.sleep(0.002)
        await ctx.run(lambda tx: tx.execute("add_effect", event_id=event.id, owner="free", at=1))

    @app.on("thing.done", concurrency=4, key=True)
    async def keyed(event: Event, ctx: EventContext) -> None:
        await ctx.run(lambda tx: tx.execute("add_effect", event_id=event.id, owner="keyed", at=1))

    return app


async def _published(store: Store, number: int) -> list[str]:
    with contextlib.suppress(StoreUnavailable):
        return await publish(store, 10, key=f"k{number % 5}")
    return []


async def test_every_effect_is_there_once_when_the_server_is_killed_again_and_again(
    tmp_path: Path,
) -> None:
    with PostgresServer() as server, server.database() as url:
        use(tmp_path, url)
        promised: list[str] = []
        async with opened(tmp_path) as one, opened(tmp_path, migrate=False) as two:
            app = make_app()
            first, second = (build(store, tmp_path, app, _CONFIG) for store in (one, two))
            async with running(first), running(second):
                for number in range(60):
                    promised += await _published(one if number % 2 else two, number)
                    if number % 15 == 7:
                        server.kill()
                        server.start()
                await until(lambda: _settled(one), timeout_s=60.0)
            done = Counter((row["event_id"], row["owner"]) for row in await rows(one, "effects"))
        assert set(done.values()) == {1}
        assert {(id, group) for id in promised for group in ("free", "keyed")} <= set(done)


async def _settled(store: Store) -> bool:
    with contextlib.suppress(StoreUnavailable):
        (left,) = await rows(store, "messages_left")
        return bool(left["count"] == 0)
    return False
