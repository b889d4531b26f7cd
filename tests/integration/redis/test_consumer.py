"""What one process has of the streams: after a lost answer, after a loss, when it was given up."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.engine.parts import publish, rows
from tests.integration.redis.parts import RedisParts, on_redis
from tests.integration.redis.stores import PREFIX, use
from tests.servers.redis import RedisServer

from cordata.broker import Message
from cordata.core.delivery import Verdict
from cordata.store import Tx

STREAM = f"{PREFIX}:stream:thing.done"


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
        await parts.settle(messages[2:3], Verdict.BACK, owner="slow")
        await parts.settle(messages[3:4], owner="slow")
        left = {row["event_id"]: row["owner"] for row in await rows(parts.store, "messages")}
        # What it handled after all has a message, too: its handler finds the mark.
        assert left == {message.event_id: "slow" for message in messages[1:]}
        assert redis.execute("XPENDING", STREAM, "a")["pending"] == 0


async def test_what_failed_goes_on_in_the_store(state: Path, redis: RedisServer) -> None:
    async with on_redis(state) as parts:
        await relayed(parts, 4)
        messages = await parts.claim("a")
        await parts.settle(messages[:1], Verdict.RETRY)
        await parts.settle(messages[1:2], Verdict.DEAD)
        await parts.settle(messages[2:3], Verdict.BACK)
        await parts.settle(messages[3:], Verdict.RETRY, delay_us=3_600_000_000)
        assert redis.execute("XPENDING", STREAM, "a")["pending"] <= 1
        attempts = {m.event_id: m.attempt for m in await parts.claim("a")}
        assert attempts == {messages[0].event_id: 2, messages[2].event_id: 1}
        found = {row["event_id"]: row["state"] for row in await rows(parts.store, "messages")}
        assert found[messages[1].event_id] == "dead"
        assert found[messages[3].event_id] == "scheduled"


async def test_depth_counts_what_is_in_streams_until_it_is_handled(
    state: Path, redis: RedisServer
) -> None:
    async with on_redis(state) as parts:
        await parts.register({"a": "thing.done"})
        broker = await parts.process()
        await publish(parts.store, 2)
        assert (await broker.depth(["a"])).ready
        await parts.relay_all()
        assert (await broker.depth(["a"])).claimed
        messages = await parts.claim("a")
        await parts.settle(messages[:1], Verdict.RETRY)
        depth = await broker.depth(["a"])
        assert (depth.ready, depth.claimed) == (1, 1)
        await parts.settle(messages[1:])
        await parts.settle(await parts.claim("a"))
        depth = await broker.depth(["a"])
        assert (depth.ready, depth.claimed, depth.dead) == (0, 0, 0)
