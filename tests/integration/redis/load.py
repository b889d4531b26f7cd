"""Workers as processes, a stream of events, and what must hold in the end, whatever happened."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.integration.engine.children import Child, child
from tests.integration.engine.parts import opened, rows, until
from tests.integration.redis.parts import broker_of, keeping
from tests.integration.redis.stores import PREFIX, use
from tests.servers.redis import RedisServer

from cordata import clock
from cordata.broker.redis.broker import RedisBroker
from cordata.metrics.backlog import read_backlog
from cordata.services.idle_exit import is_left
from cordata.store import Row, Store, Tx

WORKER = "tests.integration.engine.engine"
GROUP = "t.record"


@dataclass(slots=True)
class Load:
    """A store, workers on Redis, and the events that were committed so far."""

    state: Path
    store: Store
    broker: RedisBroker
    workers: list[Child]
    stack: AsyncExitStack
    published: list[str] = field(default_factory=list)

    async def publish(self, count: int, **payload: object) -> list[str]:
        """Commit events; the payload says what their handler is to do. Returns their ids."""

        async def unit(tx: Tx) -> list[str]:
            return [await tx.publish("thing.done", payload) for _ in range(count)]

        ids = await self.store.run(unit)
        self.published += ids
        return ids

    async def feed(self, seconds: float, *, rate: int = 400, **payload: object) -> None:
        """Publish evenly for a while."""
        end = clock.monotonic() + seconds
        while clock.monotonic() < end:
            await self.publish(rate // 20, **payload)
            await asyncio.sleep(0.05)

    async def effects(self) -> Counter[str]:
        """How often each event had its effect."""
        return Counter(row["event_id"] for row in await rows(self.store, "effects"))

    async def start_worker(self) -> Child:
        """One more worker, which is up."""
        worker = await self.stack.enter_async_context(child(WORKER, self.state))
        assert await worker.line() == "up"
        return worker

    async def messages(self) -> list[Row]:
        """What is in the store for groups."""
        return await rows(self.store, "messages")

    async def consumers(self, server: RedisServer) -> int:
        """Consumers that Redis knows of the group."""
        return len(server.execute("XINFO CONSUMERS", f"{PREFIX}:stream:thing.done", GROUP))

    async def some(self, count: int) -> None:
        """Wait until so many events had their effect."""

        async def enough() -> bool:
            return len(await self.effects()) >= count

        await until(enough)

    async def unrelayed(self) -> set[str]:
        """Events that are in no stream yet."""
        return {row["event_id"] for row in await self.messages() if row["group"] == "redis"}

    async def relayed(self, ids: list[str]) -> None:
        """Wait until these events are in the stream."""

        async def are() -> bool:
            return not await self.unrelayed() & set(ids)

        await until(are)

    async def pile_up(self, count: int, **payload: object) -> None:
        """Wait until so many events are in the stream that have had no effect; publish them."""

        async def are() -> bool:
            unrelayed, done = await self.unrelayed(), await self.effects()
            left = len(self.published) - len(done)
            if left < 2 * count:
                await self.publish(count, **payload)
            return left - len(unrelayed) >= count

        await until(are)

    async def settled(self, *, timeout_s: float = 120.0) -> float:
        """Wait until nothing is left anywhere; each effect was there exactly once. The seconds."""
        begun = clock.monotonic()

        async def empty() -> bool:
            if is_left(await self.store.read(read_backlog), [GROUP]):
                return False
            return len(await self.effects()) >= len(set(self.published))

        await until(empty, timeout_s=timeout_s)
        found, wanted = await self.effects(), Counter(self.published)
        assert found == wanted, f"lost {wanted - found}, more than once {found - wanted}"
        assert await rows(self.store, "messages") == []
        return clock.monotonic() - begun


@asynccontextmanager
async def load_on(
    state: Path, url: str, *, workers: int = 2, keep: bool = True
) -> AsyncIterator[Load]:
    """Workers that are up, with Redis at `url`; their ordered stop at the end."""
    use(state, url)
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(opened(state))
        if keep:
            await stack.enter_async_context(keeping(store, url))
        broker = broker_of(store, url)
        stack.callback(broker.close)
        load = Load(state, store, broker, [], stack)
        for _ in range(workers):
            load.workers.append(await load.start_worker())
        yield load
        for worker in load.workers:
            if worker.returncode is None:
                assert await worker.stop() == 0
