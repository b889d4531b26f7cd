"""The relay: what it adds to streams, what it costs, and what holds when an answer is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from tests.integration.engine.engine import build, running
from tests.integration.engine.parts import publish, rows, until
from tests.integration.redis.parts import RedisParts, broker_of, on_redis, relay_once, server_of
from tests.integration.redis.stores import PREFIX, use
from tests.processes import joined
from tests.servers.redis import RedisServer

from cordata import clock
from cordata.app import App
from cordata.broker import ClaimLimit, Outcome, Queue
from cordata.broker.redis import relay as relay_module
from cordata.broker.redis.broker import RedisBroker
from cordata.broker.redis.relay import Relay
from cordata.broker.redis.stream import Keys
from cordata.context import Event, EventContext
from cordata.core.message_state import Verdict
from cordata.errors import BrokerUnavailable, StoreUnavailable
from cordata.process import Process, this_process
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
    """A store with a group "a", and a relay of a process of its own that records by `watched`."""

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


async def alive(parts: RedisParts) -> Process:
    """A process that has joined."""
    return (await joined(parts.store, this_process("relay").id)).process


async def relay_on(parts: RedisParts, store: Watched, *, queue: Store | None = None) -> Relay:
    """A relay of a process of its own, which claims in `queue` and records in `store`."""
    claims = Queue(queue or parts.store, owner=(await alive(parts)).id, retries={})
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
                await relay_once(relay)
        assert len(relay.held) == 2  # so nobody takes them for claims that are unknown here
        watched.is_deaf = False
        await relay_once(relay)
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
            await relay_once(relay)
        redis.empty()
        await parts.reconciler.run_once()
        watched.is_deaf = False
        with pytest.raises(BrokerUnavailable):  # it was added to another copy of the data
            await relay_once(relay)
        assert await relay_once(relay) + await relay_once(relay) == 2
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
            await relay_once(one.relay)
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
        relay = (await parts.process()).relay
        relay._deadline = clock.monotonic() + 1e6
        assert await parts.relay_all() == 0
        assert 3_500e6 < relay.due_at() - parts.store.now_us() <= 3_600e6


async def test_batch_is_claimed_added_and_recorded_as_one_event_is(
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
            assert await relay_once(relay) == count
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
        with closing(broker_of(parts.store, parts.url)) as broker:
            await broker._server.connect()
            for number in range(4):
                broker.relay._deadline = 0.0
                next_at = (await broker.settle_and_claim([], {})).next_at
                assert next_at is not None and next_at > parts.store.now_us()
                assert caplog.text.count("no primary looks after this Redis") == (number > 0)
                await asyncio.sleep(0.25)
        assert caplog.text.count("events wait for Redis") == 1
        assert "Redis: Redis:" not in caplog.text
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
                    await relay_once(relay)
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
                        await relay_once(relay)
        assert "no primary looks after this Redis" not in caplog.text


@asynccontextmanager
async def passing(parts: RedisParts) -> AsyncIterator[RedisBroker]:
    """The broker of another process: each of its passes relays and reads, as in a worker."""
    with closing(broker_of(parts.store, parts.url, owner=(await alive(parts)).id)) as broker:
        await broker.prepare(parts.groups)
        await broker._server.connect()
        yield broker


async def test_pass_that_relays_an_event_also_claims_it(state: Path, redis: RedisServer) -> None:
    use(state, redis.url)
    async with on_redis(state) as parts:
        await parts.register({"a": "thing.done"})
        ids = await publish(parts.store, 3)
        async with passing(parts) as broker:
            claimed = await broker.settle_and_claim([], {"a": ClaimLimit(count=2)})
            assert [message.event_id for message in claimed.messages] == ids[:2]
            assert claimed.relayed == 3 and claimed.more == {"a"}
            assert redis.execute("XLEN", f"{PREFIX}:wake") == 1  # others may read what is left
            await broker.leave()
        assert await rows(parts.store, "messages") == []
        assert [message.event_id for message in await parts.claim("a")] == ids[2:]


async def test_nobody_is_woken_for_an_event_that_its_relay_has_read(
    state: Path, redis: RedisServer
) -> None:
    use(state, redis.url)
    async with on_redis(state) as parts:
        await parts.register({"a": "thing.done"})
        async with passing(parts) as broker:
            await publish(parts.store, 3)
            claimed = await broker.settle_and_claim([], {"a": ClaimLimit(count=100)})
            assert len(claimed.messages) == 3 and not claimed.more
            await broker.leave()
        assert redis.execute("XLEN", STREAM) == 3
        assert redis.execute("XLEN", f"{PREFIX}:wake") == 0


async def test_worker_relays_for_others_while_its_own_handlers_are_all_busy(
    tmp_path: Path, redis: RedisServer
) -> None:
    use(tmp_path, redis.url)
    app, begun, end = App("t"), asyncio.Event(), asyncio.Event()

    @app.on("thing.slow", concurrency=1)
    async def take(event: Event, ctx: EventContext) -> None:
        begun.set()
        await end.wait()

    async with on_redis(tmp_path) as parts:
        async with running(build(parts.store, tmp_path, app)):
            await publish(parts.store, 3, type_="thing.slow")
            await begun.wait()
            await publish(parts.store, 5, type_="thing.slow")
            stream = f"{PREFIX}:stream:thing.slow"
            await until(lambda: bool(redis.execute("XLEN", stream) == 8))
            assert not end.is_set()
            end.set()


async def test_others_are_woken_later_when_redis_refuses_the_wake_up(
    state: Path, redis: RedisServer
) -> None:
    use(state, redis.url)
    wakes, limits = f"{PREFIX}:wake", {"b": ClaimLimit(count=1)}
    async with on_redis(state) as parts:
        await parts.register({"a": "thing.done"})
        async with passing(parts) as broker:
            redis.execute("SET", wakes, "something else")
            await publish(parts.store, 1)
            assert (await broker.settle_and_claim([], limits)).relayed == 1
            assert redis.execute("XLEN", STREAM) == 1
            redis.execute("DEL", wakes)
            assert (await broker.settle_and_claim([], limits)).relayed is None
            assert redis.execute("XLEN", wakes) == 1
            await broker.leave()


async def test_pass_connects_to_no_redis(tmp_path: Path, redis: RedisServer) -> None:
    """It would wait for one that hangs, with messages of the store in its hands."""
    use(tmp_path, redis.url)
    async with on_redis(tmp_path) as parts:
        await parts.register({"a": "thing.done"})
        await publish(parts.store, 1)
        with closing(broker_of(parts.store, parts.url)) as broker:
            claimed = await broker.settle_and_claim([], {"a": ClaimLimit(count=1)})
            assert claimed.relayed == 0 and not broker._server.run_id


async def test_wake_up_during_a_pass_that_fails_is_not_lost(
    tmp_path: Path, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The primary may end a recovery just then."""
    use(tmp_path, redis.url)
    async with on_redis(tmp_path) as parts:
        await parts.register({"a": "thing.done"})
        with closing(broker_of(parts.store, parts.url)) as broker:
            relay, passes = broker.relay, 0

            async def fail(execute: Any) -> int:
                nonlocal passes
                passes += 1
                relay.wake()
                raise BrokerUnavailable("new to the primary")

            monkeypatch.setattr(relay, "run_once", fail)
            relay._failures = 100  # so that the pause is long
            for _ in range(2):
                await relay.run_if_due(lambda pipe, _: broker._server.execute(pipe))
            assert passes == 2
            # The wake-up begins the next pass itself, perhaps after a wait for the herd.
            assert relay.due_at() > parts.store.now_us()


async def test_retry_in_the_store_is_known_after_a_pass_that_claims_nothing(
    state: Path, redis: RedisServer
) -> None:
    """As in a worker whose slots are all busy. It looks again for its relay only."""
    use(state, redis.url)
    wants = {"a": ClaimLimit(count=10, low=10)}
    async with on_redis(state) as parts:
        await parts.register({"a": "thing.done"})
        await publish(parts.store, 1, priority=1)
        await parts.relay_all()
        async with passing(parts) as broker:
            (message,) = (await broker.settle_and_claim([], wants)).messages
            failed = Outcome(message=message, verdict=Verdict.RETRY, delay_us=1_000_000)
            due_at = parts.store.now_us() + 1_000_000
            await broker.settle_and_claim([failed], {})
            latest = parts.store.now_us() + 1_000_000
            for_relay = (await broker.settle_and_claim([], {})).next_at
            assert for_relay is not None
            assert abs(for_relay - broker.relay.due_at()) < 1_000_000
            waiting = await broker.settle_and_claim([], wants)
            assert due_at <= (waiting.next_at or 0) <= latest


async def test_group_that_was_full_at_a_wake_up_is_looked_for_when_it_has_room(
    state: Path, redis: RedisServer
) -> None:
    """Another group had room, and was looked for."""
    use(state, redis.url)
    full, free = {"a": ClaimLimit(count=1)}, {"b": ClaimLimit(count=1)}
    async with on_redis(state) as parts:
        await parts.register({"a": "thing.done", "b": "thing.other"})
        async with passing(parts) as broker:
            await broker.settle_and_claim([], full | free)
            ids = await publish(parts.store, 1, priority=1)  # goes through the store
            await parts.relay_all()
            broker._look_deadline = 0.0
            assert not (await broker.settle_and_claim([], free)).messages
            claimed = await broker.settle_and_claim([], full)
            assert [message.event_id for message in claimed.messages] == ids
