"""What a batch costs the relay: as many units of the store and round trips as one event."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

from tests.integration.engine.parts import publish
from tests.integration.redis.parts import RedisParts, broker_of, on_redis
from tests.integration.redis.stores import use
from tests.servers.redis import RedisServer

from cordata.broker.redis.broker import RedisBroker
from cordata.store import Store, Tx

BATCH = 300


class Counted:
    """A store that counts what it is asked for."""

    def __init__(self, store: Store) -> None:
        self.units = 0
        self.statements: list[str] = []
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def run(self, unit: Callable[[Tx], Awaitable[Any]], **more: Any) -> Any:
        self.units += 1
        return await self._store.run(lambda tx: unit(cast(Tx, _Noted(tx, self))), **more)


class _Noted:
    """A unit's tx whose statements are noted."""

    def __init__(self, tx: Tx, counted: Counted) -> None:
        self._tx = tx
        self._counted = counted

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._tx, name)
        if name not in ("execute", "write", "fetch_one", "fetch_all", "execute_many"):
            return found

        def noted(query: str, *words: Any, **params: Any) -> Any:
            self._counted.statements.append(query)
            return found(query, *words, **params)

        return noted


async def test_batch_is_claimed_published_and_marked_as_one_event_is(
    state: Path, redis: RedisServer
) -> None:
    use(state, redis.url)
    async with on_redis(state) as parts:
        counted = Counted(parts.store)
        broker = broker_of(cast(Store, counted), redis.url)
        await broker.register({"a": "thing.done"})
        await cost(parts, counted, broker, redis, 1)  # it connects, and makes the group
        one = await cost(parts, counted, broker, redis, 1)
        many = await cost(parts, counted, broker, redis, BATCH)
        broker.close()
    print(one, many)
    units, statements, reads = one
    assert statements.count("outbox.claim") == 1
    assert (many[0], many[1]) == (units, statements)
    # The server reads 16 KB at a time; it answers when it has read all.
    assert many[2] - reads <= BATCH * 500 / 16_384 + 2


async def cost(
    parts: RedisParts, counted: Counted, broker: RedisBroker, redis: RedisServer, count: int
) -> tuple[int, list[str], int]:
    """Units and statements of a relay's pass over so many events, and what Redis read in it."""
    await publish(parts.store, count)
    counted.units, counted.statements = 0, []
    with redis.client() as client:
        before = client.info("stats")["total_reads_processed"]
        assert (await broker.relay(2 * BATCH)).published == count
        reads = client.info("stats")["total_reads_processed"] - before
    return counted.units, counted.statements, reads
