"""The primary lives through a long recovery."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

from tests.integration.engine.parts import publish, rows, until
from tests.integration.redis.parts import on_redis, server_of
from tests.integration.redis.stores import PREFIX, use
from tests.servers.redis import RedisServer

from cordata.broker.redis.reconciler import Reconciler
from cordata.broker.redis.stream import Keys
from cordata.services.reconciler import ReconcilerService
from cordata.store import Store, Tx


class Watched:
    """A store at whose reads the heartbeat of the reconciler's service is looked at."""

    def __init__(self, store: Store) -> None:
        self.service: ReconcilerService | None = None
        self.touches: set[float] = set()
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def read(self, unit: Any) -> Any:
        if self.service is not None:
            self.touches.add(self.service.heartbeat.touched_at)
        return await self._store.read(unit)


async def test_primary_is_alive_as_long_as_it_publishes_again(
    state: Path, redis: RedisServer
) -> None:
    """Far more pages than fit between two touches of the watchdog are no reason to be killed."""
    use(state, redis.url)
    async with on_redis(state) as parts:
        await parts.register({"group": "thing.done"})
        await publish(parts.store, 1600)
        assert await parts.relay_all() == 1600
        await parts.reconciler.run_once()
        redis.execute("FLUSHALL")
        store = Watched(parts.store)
        watched = cast(Store, store)
        reconciler = Reconciler(watched, server_of(redis.url), Keys(PREFIX))
        store.service = ReconcilerService(watched, reconciler)
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(store.service.run(stop))

            async def published_again() -> bool:
                return len(await rows(parts.store, "messages")) == 1600

            await until(published_again)
            stop.set()
        assert len(store.touches) >= 5  # the pass begins, and 4 pages


async def test_primary_is_alive_while_it_moves_the_entries_of_many_dead_processes(
    state: Path, redis: RedisServer
) -> None:
    """A slow server takes seconds for each round trip."""
    use(state, redis.url)
    async with on_redis(state) as parts:
        await parts.register({"group": "thing.done"})
        await publish(parts.store, 20)
        await parts.relay_all()
        for number in range(20):
            assert len(await parts.claim("group", 1, f"dead-{number}")) == 1

        async def leave(tx: Tx) -> None:
            for number in range(20):
                await tx.execute("process.leave", id=f"dead-{number}")

        await parts.store.run(leave)
        most = trips = 0
        server: Any = parts.reconciler._server
        execute = server.execute

        async def trip(*words: Any) -> Any:
            nonlocal most, trips
            trips += 1
            most = max(most, trips)
            return await execute(*words)

        def progress() -> None:
            nonlocal trips
            trips = 0

        server.execute = trip
        assert await parts.reconciler.run_once(progress)
        assert most < 10
