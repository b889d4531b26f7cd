"""What one process has of the streams: after a lost answer, after a loss, when it was given up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.integration.engine.parts import publish, rows, until
from tests.integration.redis.parts import RedisParts, broker_of, on_redis
from tests.integration.redis.stores import PREFIX, use
from tests.servers.redis import RedisServer

from cordata.broker import Message
from cordata.broker.redis import server
from cordata.core.message_state import Verdict
from cordata.errors import BrokerUnavailable
from cordata.store import Tx

STREAM, WAKE = f"{PREFIX}:stream:thing.done", f"{PREFIX}:wake"


@pytest.fixture
def state(state: Path, redis: RedisServer) -> Path:
    use(state, redis.url)
    return state


async def relayed(parts: RedisParts, count: int) -> list[str]:
    await parts.register({"a": "thing.done"})
    ids = await publish(parts.store, count)
    assert await parts.relay_all() == count
    return ids


async def leave(parts: RedisParts, name: str) -> None:
    """As when it was taken for dead."""
    await parts.store.run(lambda tx: tx.execute("process.leave", id=name))


async def handle(parts: RedisParts, message: Message) -> None:
    """Its effect is committed, and nothing more."""

    async def effect(tx: Tx) -> None:
        await tx.insert(
            "handled",
            event_id=message.event_id,
            group=message.group,
            attempts=message.attempt,
            handled_at=tx.now_us,
        )

    await parts.store.run(effect)


async def test_lost_answer_is_made_up_for_on_a_new_connection(
    state: Path, redis: RedisServer
) -> None:
    async with on_redis(state) as parts:
        ids = await relayed(parts, 5)
        first = await parts.claim("a", 2)
        # As if it had asked for them, and the connection was lost before the answer came.
        redis.execute("XREADGROUP", "GROUP", "a", "me", "COUNT", 2, "STREAMS", STREAM, ">")
        redis.execute("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        again = [*await parts.claim("a"), *await parts.claim("a")]
        assert sorted(m.event_id for m in [*first, *again]) == sorted(ids)


async def test_what_was_handled_is_not_handled_again_when_its_acknowledgement_was_lost(
    state: Path, redis: RedisServer
) -> None:
    """It is in our name still, for a process that knows of nothing."""
    async with on_redis(state) as parts:
        ids = await relayed(parts, 3)
        messages = await parts.claim("a")
        await handle(parts, messages[0])
        parts.brokers.pop("me").close()
        found = [*await parts.claim("a"), *await parts.claim("a")]
        assert sorted(m.event_id for m in found) == sorted(set(ids) - {messages[0].event_id})
        await parts.settle(found)
        await parts.claim("a")
        assert redis.execute("XPENDING", STREAM, "a")["pending"] == 0


async def test_event_is_handled_once_when_a_relay_added_it_twice(
    state: Path, redis: RedisServer
) -> None:
    async with on_redis(state) as parts:
        await relayed(parts, 1)
        ((_, fields),) = redis.execute("XRANGE", STREAM, "-", "+")
        redis.execute("XADD", STREAM, "*", *(word for pair in fields.items() for word in pair))
        messages = await parts.claim("a")
        assert len(messages) == 1
        await parts.settle(messages)
        assert await parts.claim("a") == []
        await parts.reconciler.run_once()
        assert redis.execute("XLEN", STREAM) == 0


async def test_nothing_is_lost_or_doubled_when_a_process_was_taken_for_dead_and_goes_on(
    state: Path, redis: RedisServer
) -> None:
    """One of four was handled, one failed, one is given back, one is handled after all."""
    async with on_redis(state) as parts:
        await relayed(parts, 4)
        messages = await parts.claim("a", owner="slow")
        await handle(parts, messages[0])
        await leave(parts, "slow")
        await parts.reconciler.run_once()
        await parts.settle(messages[1:2], Verdict.RETRY, owner="slow")
        await parts.settle(messages[2:3], Verdict.GIVEN_BACK, owner="slow")
        await parts.settle(messages[3:4], owner="slow")
        left = {row["event_id"]: row["owner"] for row in await rows(parts.store, "messages")}
        # What it handled after all has a message, too: its handler finds the mark.
        assert left == {message.event_id: "slow" for message in messages[1:]}
        assert redis.execute("XPENDING", STREAM, "a")["pending"] == 0


@asynccontextmanager
async def listening(
    parts: RedisParts, redis: RedisServer, *, timeout_s: float = 60.0
) -> AsyncIterator[asyncio.Event]:
    """It waits for entries, and has read all; what is given is set when it is to read again."""
    parts.brokers.pop("me").close()
    parts.brokers["me"] = broker_of(parts.store, parts.url, owner="me", timeout_s=timeout_s)
    ring, broker = asyncio.Event(), await parts.process()
    listener = asyncio.create_task(broker.listen({"a": "thing.done"}, ring.set, ring.set))
    async with asyncio.timeout(60):
        await ring.wait()
        assert await parts.claim("a") == []
        await until(lambda: bool(redis.info("clients")["blocked_clients"]))  # it waits
        ring.clear()
        yield ring
    listener.cancel()
    await asyncio.wait([listener])


async def next_of(parts: RedisParts, ring: asyncio.Event) -> list[Message]:
    """What the group gets when its process is woken, as often as that takes."""
    while True:
        await ring.wait()
        ring.clear()
        if found := await parts.claim("a"):
            return found


async def test_group_is_read_when_its_wake_up_was_trimmed_before_it_was_read(
    state: Path, redis: RedisServer
) -> None:
    """The process was busy, and many other events came behind this one."""
    async with on_redis(state) as parts:
        await relayed(parts, 1)
        await parts.settle(await parts.claim("a"))
        ((_, fields),) = redis.execute("XRANGE", STREAM, "-", "+")
        before = fields["id"]
        async with listening(parts, redis) as ring:
            redis.execute("XADD", WAKE, "*", "other", 1)  # it is told of this one
            event = fields["event"].replace(before, "f" * 32)
            redis.execute("XADD", STREAM, "*", "id", "f" * 32, "event", event)
            for type in ("thing.done", *["other"] * 400):
                redis.execute("XADD", WAKE, "MAXLEN", "~", 100, "*", type, 1)
            assert [one.event_id for one in await next_of(parts, ring)] == ["f" * 32]


async def test_streams_are_read_again_when_an_answer_was_late_and_the_wait_goes_on(
    state: Path, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "BLOCK_S", 600.0)  # the wait does not end by itself
    async with on_redis(state) as parts:
        await relayed(parts, 0)
        async with listening(parts, redis, timeout_s=1.0) as ring:
            await publish(parts.store, 1)
            await parts.relay_all("other")
            messages = await next_of(parts, ring)
            redis.execute("CLIENT", "PAUSE", 60_000, "WRITE")
            await parts.settle(messages, Verdict.DEAD)  # its acknowledgement gets no answer
            redis.execute("CLIENT", "UNPAUSE")
            ids = await publish(parts.store, 3)
            assert await parts.relay_all("other") == 3
            assert sorted(one.event_id for one in await next_of(parts, ring)) == sorted(ids)


async def test_dead_process_is_reclaimed_without_its_entries_when_redis_does_not_answer(
    tmp_path: Path,
) -> None:
    """Its messages in the store are; the primary moves the entries later."""
    with RedisServer() as server:
        use(tmp_path, server.url)
        async with on_redis(tmp_path) as parts:
            await relayed(parts, 1)
            await publish(parts.store, 1, priority=1)
            await parts.relay_all()
            assert len(await parts.claim("a", owner="dead")) == 2
            parts.brokers["other"] = broker_of(parts.store, parts.url, owner="other", timeout_s=0.1)
            other = await parts.process("other")
            await other._server.connect()
            server.suspend()
            try:
                async with asyncio.timeout(30):
                    assert await other.reclaim("dead", is_dead=True) == 1
            finally:
                server.resume()
            assert await parts.reconciler.run_once()
            assert await other.reclaim("dead", is_dead=True) == 1


@pytest.mark.parametrize("lost", [1, 2, 3, 4, 5])
async def test_entries_of_all_groups_move_together_when_redis_goes_away_meanwhile(
    tmp_path: Path, redis: RedisServer, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    """A message that a dead process held alone has failed an attempt. Here it held two."""
    use(tmp_path, redis.url)
    async with on_redis(tmp_path) as parts:
        await parts.register({"a": "thing.done", "b": "thing.done"}, retries=0)
        await publish(parts.store, 1)
        await parts.relay_all()
        assert await parts.claim("a", owner="dead") and await parts.claim("b", owner="dead")
        other = await parts.process("other")
        execute, count = other._server.execute, 0

        async def fail(pipe: Any) -> Any:
            nonlocal count
            count += 1
            if count == lost:
                raise BrokerUnavailable("away")
            return await execute(pipe)

        monkeypatch.setattr(other._server, "execute", fail)
        found = await other.reclaim("dead", is_dead=True)
        assert found == (2 if lost > 2 else 0)
        states = [(row["state"], row["attempts"]) for row in await rows(parts.store, "messages")]
        assert states == [("ready", 0)] * found
