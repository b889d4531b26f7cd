"""The relay: what it adds to streams, what it costs, and what holds when an answer is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from tests.integration.engine.engine import QUICK
from tests.integration.engine.parts import publish, rows, until
from tests.integration.redis.parts import RedisParts, on_redis, server_of
from tests.integration.redis.stores import PREFIX, use
from tests.processes import joined
from tests.servers.redis import RedisServer

from cordata.broker import Queue
from cordata.broker.redis import relay as relay_module
from cordata.broker.redis.relay import Relay
from cordata.broker.redis.stream import Keys
from cordata.errors import BrokerUnavailable, StoreUnavailable
from cordata.process import this_process
from cordata.services.relay import RelayService
from cordata.store import Store, Tx

STREAM = f"{PREFIX}:stream:thing.done"
BATCH = 300


class Watched:
    """A store that notes what it is asked for; while it is deaf it takes no writes."""

    def __init__(self, store: Store) -> None:
        self.is_deaf = False
        self.units = 0
        self.statements: list[str] = []
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def run(self, unit: Callable[[Tx], Awaitable[Any]], **more: Any) -> Any:
        if self.is_deaf:
            raise StoreUnavailable("away")
        self.units += 1
        return await self._store.run(lambda tx: unit(cast(Tx, _Noted(tx, self))), **more)


class _Noted:
    """A unit's tx whose statements are noted."""

    def __init__(self, tx: Tx, watched: Watched) -> None:
        self._tx = tx
        self._watched = watched

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._tx, name)
        if name not in ("execute", "write", "fetch_one", "fetch_all"):
            return found

        def noted(query: str, *words: Any, **params: Any) -> Any:
            self._watched.statements.append(query)
            return found(query, *words, **params)

        return noted


@dataclass(slots=True)
class Relaying:
    """A store with a group "a", and a relay of a process of its own that enters by `watched`."""

    parts: RedisParts
    watched: Watched
    relay: Relay


@asynccontextmanager
async def relaying(state: Path, redis: RedisServer) -> AsyncIterator[Relaying]:
    """Until the end of the block; then the relay's connections are closed."""
    use(state, redis.url)
    async with on_redis(state) as parts:
        await parts.register({"a": "thing.done"})
        watched = Watched(parts.store)
        relay = await relay_on(parts, watched)
        with closing(relay._server):
            yield Relaying(parts, watched, relay)


async def relay_on(parts: RedisParts, store: Watched, *, queue: Store | None = None) -> Relay:
    """A relay of a process of its own, which claims in `queue` and enters in `store`."""
    process = (await joined(parts.store, this_process("relay").id)).process
    claims = Queue(queue or parts.store, owner=process.id, retries={})
    server = server_of(parts.url)
    return Relay(cast(Store, store), claims, server, Keys(PREFIX))


async def test_event_is_in_its_stream_once_when_the_store_was_away_after_it_was_added(
    state: Path, redis: RedisServer
) -> None:
    async with relaying(state, redis) as one:
        parts, watched, relay = one.parts, one.watched, one.relay
        ids = await publish(parts.store, 2)
        watched.is_deaf = True
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                await relay.run_once()
        assert len(relay.held) == 2  # so nobody takes them for claims that are unknown here
        watched.is_deaf = False
        await relay.run_once()
        assert redis.execute("XLEN", STREAM) == 2
        assert await rows(parts.store, "messages") == []
        assert sorted(m.event_id for m in await parts.claim("a")) == sorted(ids)


async def test_event_is_added_again_when_redis_lost_it_before_the_store_knew(
    state: Path, redis: RedisServer
) -> None:
    async with relaying(state, redis) as one:
        parts, watched, relay = one.parts, one.watched, one.relay
        ids = await publish(parts.store, 2)
        watched.is_deaf = True
        with pytest.raises(StoreUnavailable):
            await relay.run_once()
        redis.empty()
        await parts.reconciler.run_once()
        watched.is_deaf = False
        with pytest.raises(BrokerUnavailable):  # it was added to another copy of the data
            await relay.run_once()
        assert (await relay.run_once()).relayed + (await relay.run_once()).relayed == 2
        assert sorted(m.event_id for m in await parts.claim("a")) == sorted(ids)


async def test_event_is_handled_once_when_its_relay_died_before_the_store_knew(
    state: Path, redis: RedisServer
) -> None:
    """The next one adds it again, and says so."""
    async with relaying(state, redis) as one:
        parts = one.parts
        await publish(parts.store, 1)
        one.watched.is_deaf = True
        with pytest.raises(StoreUnavailable):
            await one.relay.run_once()
        one.relay._server.close()
        (message,) = await parts.claim("a")
        await parts.settle([message])
        (left,) = await rows(parts.store, "messages")
        assert await (await parts.process()).reclaim(left["owner"], is_dead=True) == 1
        assert await parts.relay_all() == 1
        assert redis.execute("XLEN", STREAM) == 2
        assert await parts.claim("a") == []


async def test_events_with_a_priority_and_those_that_nobody_streams_go_through_the_store(
    state: Path, redis: RedisServer
) -> None:
    use(state, redis.url)
    async with on_redis(state) as parts:
        await parts.register({"a": "thing.done", "k": "thing.keyed"}, keyed=["k"])
        low = await publish(parts.store, 1, priority=-1)
        normal = await publish(parts.store, 1)
        high = await publish(parts.store, 1, priority=5)
        keyed = await publish(parts.store, 2, type_="thing.keyed", key="x")
        await publish(parts.store, 1, type_="thing.nobody_handles")
        assert await parts.relay_all() == 3
        assert redis.execute("XLEN", STREAM) == 1
        assert redis.execute("KEYS", f"{PREFIX}:stream:*") == [STREAM]
        assert [m.event_id for m in await parts.claim("a")] == high + low + normal
        assert [m.event_id for m in await parts.claim("k")] == keyed[:1]


async def test_scheduled_event_is_in_no_stream_before_it_is_due(
    state: Path, redis: RedisServer
) -> None:
    use(state, redis.url)
    async with on_redis(state) as parts:
        await parts.register({"a": "thing.done"})
        await publish(parts.store, 1, delay_s=3600.0)
        assert await parts.relay_all() == 0
        done = await (await parts.process()).relay.run_once()
        assert done.next_at is not None and done.next_at > parts.store.now_us() + 3_500_000_000


async def test_batch_is_claimed_added_and_entered_as_one_event_is(
    state: Path, redis: RedisServer
) -> None:
    """As many units of the store, and as many round trips."""
    use(state, redis.url)
    async with on_redis(state) as parts:
        await parts.register({"a": "thing.done"})
        watched = Watched(parts.store)
        relay = await relay_on(parts, watched, queue=cast(Store, watched))

        trips, execute = 0, relay._server.execute

        async def trip(*words: Any, **more: Any) -> Any:
            nonlocal trips
            trips += 1
            return await execute(*words, **more)

        server: Any = relay._server
        server.execute = trip

        async def cost(count: int) -> tuple[int, list[str], int]:
            nonlocal trips
            await publish(parts.store, count)
            watched.units, watched.statements, trips = 0, [], 0
            assert (await relay.run_once()).relayed == count
            return watched.units, watched.statements, trips

        await cost(1)  # it connects
        one = await cost(1)
        assert one[1].count("redis.relayed") == 1 and one[2] > 0
        assert await cost(BATCH) == one
        relay._server.close()


async def test_relay_says_once_that_it_waits_and_then_what_to_do(
    tmp_path: Path,
    redis: RedisServer,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No primary looks after this Redis."""
    caplog.set_level("INFO")
    use(tmp_path, redis.url)
    async with on_redis(tmp_path) as parts:
        redis.empty()
        await parts.store.run(lambda tx: tx.execute("redis.remove_server"))
        monkeypatch.setattr(relay_module, "_PRIMARY_S", 0.2)
        relay = await relay_on(parts, Watched(parts.store))
        service = RelayService(parts.store, relay, QUICK)
        with closing(relay._server):
            for number in range(4):
                assert await service.run_once() > 0.0
                assert caplog.text.count("no primary looks after this Redis") == (number > 0)
                await asyncio.sleep(0.25)
        assert caplog.text.count("events wait for Redis") == 1
        assert "have to be the same on every host" in caplog.text


async def test_relay_misses_no_primary_while_one_recovers_redis(
    tmp_path: Path,
    redis: RedisServer,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That may take minutes after a large loss."""
    monkeypatch.setattr(relay_module, "_PRIMARY_S", 0.0)
    use(tmp_path, redis.url)
    async with on_redis(tmp_path) as parts:

        async def close_gate(tx: Tx) -> None:
            await tx.write("redis.set_server", run_id="", epoch="", recheck_to=0)

        await parts.store.run(close_gate)
        relay = await relay_on(parts, Watched(parts.store))
        with closing(relay._server):
            for _ in range(3):
                with pytest.raises(BrokerUnavailable, match="new to the primary"):
                    await relay.run_once()
        assert "no primary looks after this Redis" not in caplog.text


async def test_relay_gives_the_primary_time_for_each_redis_that_comes_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that the primary has not seen may be away for longer than this time."""
    monkeypatch.setattr(relay_module, "_PRIMARY_S", 0.0)
    with RedisServer() as server:
        use(tmp_path, server.url)
        async with on_redis(tmp_path) as parts:
            relay = await relay_on(parts, Watched(parts.store))

            async def reached() -> bool:
                pipe = relay._server.pipeline()
                pipe.ping()
                with suppress(BrokerUnavailable):
                    return bool(await relay._server.execute(pipe))
                return False

            with closing(relay._server):
                for _ in range(2):
                    server.restart()
                    await until(reached)
                    with pytest.raises(BrokerUnavailable, match="new to the primary"):
                        await relay.run_once()
        assert "no primary looks after this Redis" not in caplog.text


async def test_relays_of_an_idle_fleet_look_seldom_when_one_of_them_does_the_work(
    tmp_path: Path, redis: RedisServer
) -> None:
    """Every commit wakes all of them."""
    use(tmp_path, redis.url)
    async with on_redis(tmp_path) as parts:
        await parts.register({"a": "thing.done"})
        watched = [Watched(parts.store) for _ in range(3)]
        relays = [await relay_on(parts, one, queue=cast(Store, one)) for one in watched]
        services = [RelayService(parts.store, one, QUICK) for one in relays]
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            for service in services:
                tasks.create_task(service.run(stop))
            for _ in range(100):
                await publish(parts.store, 1)
                await asyncio.sleep(0.005)
            await until(lambda: bool(redis.execute("XLEN", STREAM) == 100))
            stop.set()
        entered = [one.statements.count("redis.relayed") for one in watched]
        assert sum(entered) <= 100, entered  # of 300, if each of them looked after each commit
        for relay in relays:
            relay._server.close()
