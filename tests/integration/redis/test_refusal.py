"""Redis answers, but refuses commands: what needs them waits, everything else goes on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio.client import Pipeline
from redis.exceptions import ResponseError
from tests.integration.engine.parts import publish, rows, until
from tests.integration.redis.parts import RedisParts, broker_of, on_redis
from tests.integration.redis.stores import PREFIX, use
from tests.servers.redis import RedisServer

from cordata.broker import ClaimLimit
from cordata.broker.group import RELAY
from cordata.errors import BrokerUnavailable
from cordata.services.reconciler import ReconcilerService

STREAM = f"{PREFIX}:stream:thing.done"


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """One that a test may spoil."""
    with RedisServer(config={"maxmemory-policy": "noeviction"}) as server:
        yield server


@pytest.fixture
def state(tmp_path: Path, server: RedisServer) -> Path:
    use(tmp_path, server.url)
    return tmp_path


async def claimed(parts: RedisParts, *groups: str) -> dict[str, int]:
    """What one claim gives each group."""
    broker = await parts.process()
    broker._look_deadline = 0.0
    messages = (
        await broker.settle_and_claim([], {one: ClaimLimit(count=100, low=0) for one in groups})
    ).messages
    return {group: sum(m.group == group for m in messages) for group in groups}


async def _relayed(parts: RedisParts) -> bool:
    """Whether nothing waits for a relay any more."""
    with suppress(BrokerUnavailable):
        await parts.relay_all()
        return RELAY not in {row["group"] for row in await rows(parts.store, "messages")}
    return False


async def _reconciled(parts: RedisParts) -> bool:
    with suppress(BrokerUnavailable, ResponseError):
        return not await parts.reconciler.run_once()
    return False


async def test_others_get_their_messages_when_redis_has_no_memory_for_a_new_group(
    state: Path, server: RedisServer
) -> None:
    """Those of the store, and those of groups that exist."""
    async with on_redis(state) as parts:
        await parts.register({"keyed": "thing.done", "old": "thing.done"}, keyed=["keyed"])
        await publish(parts.store, 2, key="x")
        await parts.relay_all()
        server.execute("CONFIG", "SET", "maxmemory", 1)
        await parts.register({"new": "thing.new"})
        assert await claimed(parts, "keyed", "old", "new") == {"keyed": 1, "old": 2, "new": 0}
        assert not await _reconciled(parts)
        server.execute("CONFIG", "SET", "maxmemory", 0)
        await until(lambda: _reconciled(parts))
        (event_id,) = await publish(parts.store, 1, type_="thing.new")
        await until(lambda: _relayed(parts))

        async def brought() -> bool:
            return [m.event_id for m in await parts.claim("new")] == [event_id]

        await until(brought)


async def test_group_goes_on_when_redis_lost_it_and_made_none_for_a_while(
    state: Path, server: RedisServer
) -> None:
    async with on_redis(state) as parts:
        await parts.register({"lost": "thing.done", "other": "thing.done"})
        await publish(parts.store, 3)
        await parts.relay_all()
        assert await claimed(parts, "lost") == {"lost": 3}
        await publish(parts.store, 2)
        await parts.relay_all()
        server.execute("ACL", "SETUSER", "default", "-xgroup|create")
        server.execute("XGROUP", "DESTROY", STREAM, "lost")
        assert await claimed(parts, "lost", "other") == {"lost": 0, "other": 5}
        assert not await _reconciled(parts)
        server.execute("ACL", "SETUSER", "default", "+xgroup|create")
        await until(lambda: _reconciled(parts))

        async def brought() -> bool:
            return (await claimed(parts, "lost"))["lost"] == 2

        await until(brought)


async def test_relay_waits_when_redis_runs_no_scripts(state: Path, server: RedisServer) -> None:
    async with on_redis(state) as parts:
        await parts.register({"a": "thing.done"})
        await publish(parts.store, 1)
        server.execute("ACL", "SETUSER", "default", "-eval")
        with pytest.raises(BrokerUnavailable, match="NOPERM"):
            await parts.relay_all()
        broker = await parts.process()
        assert "NOPERM" in broker.status()

        async def execute(pipe: Pipeline, types: Collection[str]) -> list[Any]:
            return await broker._server.execute(pipe)

        broker.relay._deadline = 0.0
        await broker.relay.run_if_due(execute)
        before = server.info("commandstats")["cmdstat_eval"]["rejected_calls"]
        broker.relay.wake()  # by another event: it does not ask again at once
        assert await broker.relay.run_if_due(execute) is None
        assert server.info("commandstats")["cmdstat_eval"]["rejected_calls"] == before
        server.execute("ACL", "SETUSER", "default", "+eval")
        await until(lambda: _relayed(parts))
        assert await rows(parts.store, "messages") == []
        assert await claimed(parts, "a") == {"a": 1}


async def test_event_that_was_added_again_is_no_suspect(state: Path, server: RedisServer) -> None:
    """It has killed no process: others are handled beside it."""
    async with on_redis(state) as parts:
        await parts.register({"a": "thing.done"})
        await publish(parts.store, 1)
        server.execute("ACL", "SETUSER", "default", "-eval")
        with pytest.raises(BrokerUnavailable):
            await parts.relay_all()
        server.execute("ACL", "SETUSER", "default", "+eval")
        await until(lambda: _relayed(parts))
        ((_, fields),) = server.execute("XRANGE", STREAM, "-", "+")
        assert '"again":true' in fields["event"]
        (message,) = await parts.claim("a")
        assert not message.suspect


async def test_error_is_logged_when_redis_refuses_the_end_of_its_recovery(
    state: Path, server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Until then nothing is published to it."""
    async with on_redis(state) as parts:
        service = ReconcilerService(parts.store, parts.reconciler)
        server.empty()
        server.execute("ACL", "SETUSER", "default", "-set")
        for _ in range(4):
            assert await service.run_once() is None
        errors = [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]
        assert len(errors) == 1
        assert errors[0].startswith("Redis refuses to be reconciled: NOPERM")
        reasons = ["its data is gone", "a recovery did not finish"]
        assert [caplog.text.count(f"{reason}; recovering") for reason in reasons] == [1, 1]
        server.execute("ACL", "SETUSER", "default", "+set")
        assert await service.run_once()


async def test_lost_answer_is_made_up_for_when_redis_refused_to_read_it_again(
    state: Path, server: RedisServer
) -> None:
    async with on_redis(state) as parts:
        await parts.register({"a": "thing.done"})
        ids = await publish(parts.store, 4)
        await parts.relay_all()
        first = await parts.claim("a", 2)
        server.execute("XREADGROUP", "GROUP", "a", "me", "COUNT", 2, "STREAMS", STREAM, ">")
        server.execute("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        server.execute("ACL", "SETUSER", "default", "-xreadgroup")
        assert await parts.claim("a") == await parts.claim("a") == []
        server.execute("ACL", "SETUSER", "default", "+xreadgroup")
        again = list(first)

        async def complete() -> bool:
            again.extend(await parts.claim("a"))
            return len(again) >= len(ids)

        await until(complete)
        assert sorted(m.event_id for m in again) == sorted(ids)


async def test_group_is_read_again_when_redis_refused_one_read_of_it(
    state: Path, server: RedisServer
) -> None:
    """Nothing more is added for its type, which would wake it."""
    async with on_redis(state) as parts:
        await parts.register({"a": "thing.done"})
        ids = await publish(parts.store, 2)
        await parts.relay_all()
        worker = parts.brokers["worker"] = broker_of(parts.store, parts.url, timeout_s=60.0)
        await worker.prepare(parts.groups)

        async def claim() -> list[str]:
            worker._look_deadline = 0.0
            claimed = await worker.settle_and_claim([], {"a": ClaimLimit(count=9, low=9)})
            return sorted(message.event_id for message in claimed.messages)

        server.execute("ACL", "SETUSER", "default", "-xreadgroup")
        await worker._server.connect()
        assert await claim() == []
        server.execute("ACL", "SETUSER", "default", "+xreadgroup")
        assert await claim() == sorted(ids)


async def test_events_go_through_the_store_while_something_else_has_the_key_of_their_stream(
    state: Path, server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Those that were in it, too; and other types do not notice."""
    async with on_redis(state) as parts:
        await parts.register({"a": "thing.done", "b": "thing.other"})
        ids = await publish(parts.store, 2)
        await parts.relay_all()
        server.execute("DEL", STREAM)
        server.execute("SET", STREAM, "a string")
        await parts.reconciler.run_once()
        others = await publish(parts.store, 2, type_="thing.other")
        ids += await publish(parts.store, 2)
        await until(lambda: _relayed(parts))
        await parts.reconciler.run_once()
        await parts.relay_all()
        assert server.execute("XLEN", f"{PREFIX}:stream:thing.other") == 2
        assert sorted(m.event_id for m in await parts.claim("a")) == sorted(ids)
        assert sorted(m.event_id for m in await parts.claim("b")) == sorted(others)
        errors = [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]
        assert any("something else uses this key" in error for error in errors)


async def test_entries_are_acknowledged_once_when_something_else_has_the_key_of_another_stream(
    state: Path, server: RedisServer
) -> None:
    """So the process keeps no list of them that grows."""
    async with on_redis(state) as parts:
        await parts.register({"a": "thing.done", "b": "thing.other"})
        await publish(parts.store, 1)
        await publish(parts.store, 1, type_="thing.other")
        await parts.relay_all()
        held = [*await parts.claim("a"), *await parts.claim("b")]
        assert len(held) == 2
        server.execute("DEL", STREAM)
        server.execute("SET", STREAM, "a string")
        await parts.settle(held)
        other = f"{PREFIX}:stream:thing.other"
        assert server.execute("XPENDING", other, "b")["pending"] == 0

        def acknowledgements() -> int:
            return int(server.info("commandstats")["cmdstat_xack"]["calls"])

        before = acknowledgements()
        await parts.claim("b")
        assert acknowledgements() == before


async def test_messages_of_a_dead_process_are_reclaimed_when_something_else_has_a_key(
    state: Path, server: RedisServer
) -> None:
    async with on_redis(state) as parts:
        await parts.register({"a": "thing.done", "b": "thing.other"})
        ids = await publish(parts.store, 2, type_="thing.other")
        await parts.relay_all()
        assert len(await parts.claim("b", owner="dead")) == 2
        server.execute("DEL", STREAM)
        server.execute("SET", STREAM, "a string")
        assert await (await parts.process()).reclaim("dead", is_dead=True) == len(ids)


async def test_messages_of_a_dead_process_stay_when_redis_refuses_to_show_its_entries(
    state: Path, server: RedisServer
) -> None:
    """What it held in the store is reclaimed; its entries are moved when Redis shows them."""
    async with on_redis(state) as parts:
        await parts.register({"a": "thing.done"})
        await publish(parts.store, 2)
        await publish(parts.store, 1, priority=1)
        await parts.relay_all()
        assert len(await parts.claim("a", owner="dead")) == 3
        other = await parts.process()
        server.execute("ACL", "SETUSER", "default", "-xrange")
        assert await other.reclaim("dead", is_dead=True) == 1
        server.execute("ACL", "SETUSER", "default", "+xrange")
        assert await other.reclaim("dead", is_dead=True) == 2


async def test_messages_of_a_dead_process_are_reclaimed_when_redis_takes_no_acknowledgements(
    state: Path, server: RedisServer
) -> None:
    async with on_redis(state) as parts:
        await parts.register({"a": "thing.done"})
        await publish(parts.store, 2)
        await parts.relay_all()
        assert len(await parts.claim("a", owner="dead")) == 2
        other = await parts.process()
        server.execute("ACL", "SETUSER", "default", "-xack")
        async with asyncio.timeout(30):
            assert await other.reclaim("dead", is_dead=True) == 2
            assert await other.reclaim("dead", is_dead=True) == 0
        server.execute("ACL", "SETUSER", "default", "+xack")
        assert await other.reclaim("dead", is_dead=True) == 0
        assert server.execute("XPENDING", STREAM, "a")["pending"] == 0
