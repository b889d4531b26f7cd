"""Beside Redis, too, a read of the store that takes too long ends no role: see the engine's."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

from tests.integration.engine.engine import build, running
from tests.integration.engine.parts import opened, publish
from tests.integration.engine.slow import SlowAtFirst
from tests.integration.redis.parts import keeping, server_of
from tests.integration.redis.stores import PREFIX, use
from tests.servers.redis import RedisServer

from cordata.app import App
from cordata.broker.redis.reconciler import Reconciler
from cordata.broker.redis.stream import Keys
from cordata.context import Event, EventContext
from cordata.services.reconciler import ReconcilerService
from cordata.store import Store


async def test_worker_handles_all_when_each_read_took_too_long_once(
    tmp_path: Path, redis: RedisServer
) -> None:
    app, handled = App("t"), list[str]()

    @app.on("thing.done", retries=0)
    async def take(event: Event, ctx: EventContext) -> None:
        handled.append(event.id)

    use(tmp_path, redis.url)
    async with opened(tmp_path) as store, keeping(store, redis.url):
        slow = SlowAtFirst(store)
        engine = build(cast(Store, slow), tmp_path, app)
        async with asyncio.timeout(60), running(engine):
            ids = await publish(store, 5)
            await engine.idle_exit.run(asyncio.Event())
    assert sorted(handled) == sorted(ids)
    assert slow.stopped >= {"load", "Queue._only_claimable"}


async def test_reconciler_looks_again_when_each_read_took_too_long_once(
    tmp_path: Path, redis: RedisServer
) -> None:
    use(tmp_path, redis.url)
    async with opened(tmp_path) as store:
        slow = SlowAtFirst(store)
        server = server_of(redis.url)
        reconciler = Reconciler(cast(Store, slow), server, Keys(PREFIX))
        service = ReconcilerService(store, reconciler)
        try:
            async with asyncio.timeout(60):
                while await service.run_once() is None:
                    pass
        finally:
            reconciler.close()
    assert slow.stopped >= {"load", "Reconciler._publish_again"}
