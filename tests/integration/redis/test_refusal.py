"""Redis answers, but refuses commands: what needs them waits, everything else goes on."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.integration.engine.engine import QUICK
from tests.integration.engine.parts import publish, rows, runtime_of, until
from tests.integration.redis.parts import RedisParts, broker_of, on_redis
from tests.integration.redis.stores import PREFIX, use
from tests.servers.redis import RedisServer

from cordata.broker import Owner, Owners, Want
from cordata.errors import BrokerUnavailable
from cordata.services.reclaim import ReclaimService

STREAM = f"{PREFIX}:stream:thing.done:normal"


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """One that a test may spoil."""
    with RedisServer(config={"maxmemory-policy": "noeviction"}) as server:
        yield server


@pytest.fixture
def state(tmp_path: Path, server: RedisServer) -> Path:
    use(tmp_path, server.url)
    return tmp_path


async def test_reclaim_ends_and_forgets_nobody_when_redis_runs_no_scripts(
    state: Path, server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    runtime = runtime_of(state)
    async with on_redis(state) as parts:
        await parts.broker.register({"a": "thing.done"})
        await publish(parts.store, 5)
        await parts.relay_all()
        dead, mine = (Owner.register(runtime, name=name) for name in ("dead", "mine"))
        with closing(broker_of(parts.store, server.url)) as other:
            assert len((await other.exchange(dead.id, [], {"a": Want(live=10)})).messages) == 5
            os.close(dead._fd)  # as at its death
            owners = Owners(runtime)
            assert owners.dead(owners.ids()) == [dead.id]
        reclaim = ReclaimService(parts.store, parts.broker, mine, owners, (), QUICK)
        server.execute("ACL", "SETUSER", "default", "-eval")
        for _ in range(2):
            assert await asyncio.wait_for(reclaim.run_once(), 10) == 0
        assert "took back" not in caplog.text
        assert "NOPERM" in caplog.text
        assert dead.id in owners.ids()
        server.execute("ACL", "SETUSER", "default", "+eval")
        assert await reclaim.run_once() == 5
        assert await reclaim.run_once() == 0
        assert owners.ids() == [mine.id]
        assert len(await parts.claim("a")) == 5
        mine.close()


async def claimed(parts: RedisParts, *groups: str) -> dict[str, int]:
    """What one exchange brings each group."""
    wanted = {group: Want(live=100) for group in groups}
    messages = (await parts.broker.exchange("me", [], wanted)).messages
    return {group: sum(m.group == group for m in messages) for group in groups}


async def test_others_get_their_messages_when_redis_has_no_memory_for_a_new_group(
    state: Path, server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Those of the store, which are claimed by then, and those of groups that exist."""
    async with on_redis(state) as parts:
        broker = parts.broker
        await broker.register({"keyed": "thing.done", "old": "thing.done"}, keyed=["keyed"])
        await publish(parts.store, 2, key="x")
        await parts.relay_all()
        server.execute("CONFIG", "SET", "maxmemory", 1)
        await broker.register({"new": "thing.new"})
        assert await claimed(parts, "keyed", "old", "new") == {"keyed": 1, "old": 2, "new": 0}
        assert "new" not in await broker.due_at(["keyed", "old", "new"])  # not again and again
        assert "OOM" in broker.status()
        server.execute("CONFIG", "SET", "maxmemory", 0)

        async def brought() -> bool:
            await claimed(parts, "new")
            return broker.status() == ""

        await until(brought)
        (event_id,) = await publish(parts.store, 1, type_="thing.new")
        await until(lambda: _relayed(parts))
        assert [m.event_id for m in await parts.claim("new")] == [event_id]
    errors = [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]
    assert len(errors) == 1


async def _relayed(parts: RedisParts) -> bool:
    try:
        await parts.relay_all()
    except BrokerUnavailable:
        return False
    return True


async def test_group_goes_on_at_its_mark_when_redis_lost_it_and_made_none_for_a_while(
    state: Path, server: RedisServer
) -> None:
    async with on_redis(state) as parts:
        await parts.broker.register({"lost": "thing.done", "other": "thing.done"})
        await publish(parts.store, 3)
        await parts.relay_all()
        assert await claimed(parts, "lost") == {"lost": 3}
        await publish(parts.store, 2)
        await parts.relay_all()
        server.execute("ACL", "SETUSER", "default", "-xgroup|create")
        server.execute("XGROUP", "DESTROY", STREAM, "lost")
        assert await claimed(parts, "lost", "other") == {"lost": 0, "other": 5}
        assert (await parts.broker.due_at(["lost", "other"])).keys() == {"other"}
        server.execute("ACL", "SETUSER", "default", "+xgroup|create")

        async def brought() -> bool:
            return (await claimed(parts, "lost"))["lost"] > 0

        await until(brought)


async def test_relay_waits_when_redis_runs_no_scripts(state: Path, server: RedisServer) -> None:
    async with on_redis(state) as parts:
        await parts.broker.register({"a": "thing.done"})
        await publish(parts.store, 1)
        server.execute("ACL", "SETUSER", "default", "-eval")
        with pytest.raises(BrokerUnavailable, match="NOPERM"):
            await parts.broker.relay(100)
        with pytest.raises(BrokerUnavailable):  # and is not asked again at once
            await parts.broker.relay(100)
        assert "NOPERM" in parts.broker.status()
        server.execute("ACL", "SETUSER", "default", "+eval")
        await until(lambda: _relayed(parts))
        assert [row["state"] for row in await rows(parts.store, "outbox_states")] == ["published"]
        assert await claimed(parts, "a") == {"a": 1}


async def test_nothing_is_acknowledged_and_all_is_marked_when_redis_runs_no_scripts(
    state: Path, server: RedisServer
) -> None:
    """Others may take it over then: they find that it was handled."""
    async with on_redis(state) as parts:
        await parts.broker.register({"a": "thing.done"})
        await publish(parts.store, 2)
        await parts.relay_all()
        messages = await parts.claim("a")
        server.execute("ACL", "SETUSER", "default", "-eval")
        await parts.finish(messages)
        assert server.execute("XPENDING", STREAM, "a")["pending"] == 2
        assert (await rows(parts.store, "seen_count"))[0]["count"] == 2
        server.execute("ACL", "SETUSER", "default", "+eval")
        assert await parts.broker.owners() == {"me": False}


async def test_lost_answer_is_made_up_for_when_redis_refused_to_read_it_again(
    state: Path, server: RedisServer
) -> None:
    async with on_redis(state) as parts:
        await parts.broker.register({"a": "thing.done"})
        ids = await publish(parts.store, 4)
        await parts.relay_all()
        first = await parts.claim("a", 2)
        server.execute("XREADGROUP", "GROUP", "a", "me", "COUNT", 2, "STREAMS", STREAM, ">")
        parts.broker._consumer._of("me").is_incomplete = True
        server.execute("ACL", "SETUSER", "default", "-xreadgroup")
        assert await parts.claim("a") == []
        server.execute("ACL", "SETUSER", "default", "+xreadgroup")
        again = await parts.claim("a")
        assert sorted(m.event_id for m in [*first, *again]) == sorted(ids)
