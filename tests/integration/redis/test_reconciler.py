"""Trimming, and what the primary does when Redis lost data."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.integration.engine.parts import publish, rows, until
from tests.integration.redis.parts import RedisParts, on_redis
from tests.integration.redis.stores import PREFIX, use
from tests.processes import joined
from tests.servers.redis import RedisServer

from cordata.broker import Message
from cordata.broker.group import Group, register
from cordata.core.message_state import Verdict
from cordata.errors import BrokerUnavailable
from cordata.events import BROKER_DATA_LOST
from cordata.metrics.backlog import read_backlog
from cordata.services.idle_exit import is_left
from cordata.store import Tx

STREAM = f"{PREFIX}:stream:thing.done"


def prepared(state: Path, server: RedisServer) -> Path:
    use(state, server.url)
    return state


async def relayed(parts: RedisParts, count: int, *groups: str) -> list[str]:
    await parts.register(dict.fromkeys(groups, "thing.done"))
    ids = await publish(parts.store, count)
    assert await parts.relay_all() == count
    return ids


def events(messages: Sequence[Message]) -> list[str]:
    return [message.event_id for message in messages]


def same(one: Sequence[str], other: Sequence[str]) -> bool:
    """In whatever order: ids of one millisecond have none."""
    return sorted(one) == sorted(other)


async def keep(parts: RedisParts) -> None:
    """One pass, after those that only find that the connection is gone."""

    async def passed() -> bool:
        with contextlib.suppress(BrokerUnavailable):
            await parts.reconciler.run_once()
            return True
        return False

    await until(passed)


async def test_entries_stay_until_the_slowest_group_has_handled_them(
    state: Path, redis: RedisServer
) -> None:
    async with on_redis(prepared(state, redis)) as parts:
        await relayed(parts, 10, "fast", "slow")
        await parts.settle(await parts.claim("fast"))
        some = await parts.claim("slow", 5)
        await parts.settle(some[:2])
        await parts.reconciler.run_once()
        assert redis.execute("XLEN", STREAM) == 8
        await parts.settle(some[2:])
        await parts.settle(await parts.claim("slow"))
        assert await parts.reconciler.run_once()
        assert redis.execute("XLEN", STREAM) == 0
        assert await rows(parts.store, "messages") == []
        assert not await parts.reconciler.run_once()  # nothing moves any more


async def test_only_what_a_group_has_not_done_comes_again_when_redis_is_emptied(
    state: Path, redis: RedisServer
) -> None:
    async with on_redis(prepared(state, redis)) as parts:
        ids = await relayed(parts, 10, "a", "b")
        await parts.settle(await parts.claim("a", 4))
        redis.empty()
        await parts.reconciler.run_once()
        assert same(events(await parts.claim("a")), ids[4:])
        assert same(events(await parts.claim("b")), ids)
        new = await relayed(parts, 2)
        assert events(await parts.claim("a")) == events(await parts.claim("b")) == new


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        ([("FLUSHALL",)], "its data is gone"),
        ([("DEL", f"{PREFIX}:epoch")], "its data is gone"),
        ([("DEL", STREAM)], "its last entry of thing.done is too old"),
        (
            [("DEL", STREAM), ("XGROUP", "CREATE", STREAM, "a", "0", "MKSTREAM")],
            "its last entry of thing.done is too old",
        ),
        ([("XGROUP", "DESTROY", STREAM, "a")], "it has no group a"),
    ],
    ids=["emptied", "no epoch", "no stream", "older stream", "no group"],
)
async def test_each_loss_is_noticed_by_the_same_process_of_redis(
    state: Path,
    redis: RedisServer,
    caplog: pytest.LogCaptureFixture,
    harm: Sequence[tuple[str, ...]],
    reason: str,
) -> None:
    """Its run id stays; what was not handled comes, from where it still is or once more."""
    async with on_redis(prepared(state, redis)) as parts:
        ids = await relayed(parts, 6, "a")
        done = await parts.claim("a", 2)
        await parts.settle(done)
        await parts.reconciler.run_once()
        assert "lost data" not in caplog.text
        for command in harm:
            assert redis.execute(*command)
        await parts.reconciler.run_once()
        assert f"Redis lost data, or may have: {reason}; recovering" in caplog.text
        assert same(events(await parts.claim("a")), [id_ for id_ in ids if id_ not in events(done)])
        new = await relayed(parts, 2)
        assert same(events(await parts.claim("a")), new)


async def test_entries_that_nobody_missed_come_when_all_groups_have_gone_past_them(
    state: Path, redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Deleted inside of a stream, which shows nowhere."""
    async with on_redis(prepared(state, redis)) as parts:
        ids = await relayed(parts, 5, "a", "b")
        entries = redis.execute("XRANGE", STREAM, "-", "+")
        assert redis.execute("XDEL", STREAM, entries[1][0]) == 1
        for group in ("a", "b"):
            messages = await parts.claim(group)
            assert same(events(messages), [ids[0], *ids[2:]])
            await parts.settle(messages)
        await parts.reconciler.run_once()
        assert "republished 2 messages of thing.done that Redis lost" in caplog.text
        (line,) = (one for one in caplog.records if "that Redis lost" in one.message)
        assert line.__dict__["MESSAGE_ID"] == BROKER_DATA_LOST
        assert events(await parts.claim("a")) == events(await parts.claim("b")) == [ids[1]]


async def test_acknowledgement_that_finds_nothing_needs_no_mark(
    state: Path, redis: RedisServer
) -> None:
    """Handled while Redis lost it: it is not handled again."""
    async with on_redis(prepared(state, redis)) as parts:
        await relayed(parts, 4, "a")
        messages = await parts.claim("a")
        redis.empty()
        await parts.settle(messages)
        assert (await rows(parts.store, "handled_count"))[0]["count"] == 4
        await parts.reconciler.run_once()
        assert await parts.claim("a") == []


async def test_what_is_still_in_its_stream_is_not_published_again(
    state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with RedisServer(appendonly=True, config={"appendfsync": "always"}) as server:
        async with on_redis(prepared(state, server)) as parts:
            ids = await relayed(parts, 10, "a")
            held = await parts.claim("a", 7)
            await parts.settle(held[:3])
            server.restart()
            await keep(parts)
            assert await rows(parts.store, "messages") == []
            # What this process has in hand is in its name still; the rest comes, and only that.
            assert same(events(held[:3] + held[3:] + await parts.claim("a")), ids)


async def test_messages_in_the_store_are_not_doubled_when_redis_goes_back_in_time(
    state: Path,
) -> None:
    """Failed once, so it waits in the store; its acknowledgement is undone."""
    with RedisServer() as server:
        async with on_redis(prepared(state, server)) as parts:
            await relayed(parts, 3, "a")
            copy = server.snapshot()
            messages = await parts.claim("a")
            await parts.settle(messages[:1], Verdict.DEAD)
            await parts.settle(messages[1:], Verdict.RETRY)
            server.roll_back(copy)
            await keep(parts)
            assert len(await parts.claim("a")) == 2  # from the store
            states = [row["state"] for row in await rows(parts.store, "messages")]
            assert sorted(states) == ["claimed", "claimed", "dead"]


async def test_relay_waits_until_the_primary_has_looked_through_a_new_redis(
    state: Path, redis: RedisServer
) -> None:
    async with on_redis(prepared(state, redis)) as parts:
        ids = await relayed(parts, 1, "a")
        redis.empty()
        ids += await publish(parts.store, 2)
        with pytest.raises(BrokerUnavailable, match="primary"):
            await parts.relay_all()
        await (await parts.process()).relay.settle_failed()
        states = [row["state"] for row in await rows(parts.store, "messages")]
        assert states == ["scheduled"] * 2  # any relay may retry them
        await parts.reconciler.run_once()
        assert await parts.relay_all() == 2
        assert same(events(await parts.claim("a")), ids)


async def test_group_that_is_forgotten_no_longer_holds_entries_back(
    state: Path, redis: RedisServer
) -> None:
    async with on_redis(prepared(state, redis)) as parts:
        await relayed(parts, 5, "a", "gone")
        await parts.settle(await parts.claim("a"))
        await parts.reconciler.run_once()
        assert redis.execute("XLEN", STREAM) == 5

        async def forget(tx: Tx) -> None:
            await tx.execute("forget_group", group="gone")

        await parts.store.run(forget)
        for _ in range(3):
            await parts.reconciler.run_once()
        assert redis.execute("XLEN", STREAM) == 0
        names = [facts["name"] for facts in redis.execute("XINFO GROUPS", STREAM)]
        assert names == ["a"]


async def test_group_gets_the_rest_of_its_old_type_when_it_handles_another_one(
    state: Path, redis: RedisServer
) -> None:
    async with on_redis(prepared(state, redis)) as parts:
        ids = await relayed(parts, 3, "a")
        await parts.settle(await parts.claim("a", 1))
        await parts.register({"a": "other.type"})
        ids += await publish(parts.store, 2, type_="other.type")
        await parts.relay_all()
        for _ in range(3):
            await parts.reconciler.run_once()
        messages = await parts.claim("a")
        assert same(events(messages), ids[1:])
        await parts.settle(messages)
        await parts.reconciler.run_once()
        assert redis.execute("EXISTS", STREAM) == 0


async def test_group_gets_no_event_from_before_its_registration_when_the_primary_makes_it(
    state: Path, redis: RedisServer
) -> None:
    """Redis was away when it was registered, and others have entries that are older."""
    async with on_redis(prepared(state, redis)) as parts:
        before = await relayed(parts, 2, "a")
        await register(parts.store, [Group("late", "thing.done", broker="redis")])
        parts.groups["late"] = "thing.done"
        await keep(parts)
        ids = await publish(parts.store, 1)
        assert await parts.relay_all() == 1
        assert events(await parts.claim("late", owner="dead")) == ids
        assert same(events(await parts.claim("a")), before + ids)
        # It has acknowledged nothing yet.
        await (await parts.process("other")).reclaim("dead", is_dead=True)
        assert [row["event_id"] for row in await rows(parts.store, "messages")] == ids


async def test_what_a_process_held_is_reclaimed_when_its_lease_expired_and_not_before(
    state: Path, redis: RedisServer
) -> None:
    """It may live, on another host."""
    async with on_redis(prepared(state, redis)) as parts:
        ids = await relayed(parts, 3, "a")
        assert same(events(await parts.claim("a", owner="slow")), ids)
        broker = await parts.process()
        for lease_s, moved in ((60.0, 0), (-1.0, 3)):
            await joined(parts.store, "slow", lease_s=lease_s)
            await broker.reclaim("slow", is_dead=False)
            await parts.reconciler.run_once()
            assert redis.execute("XPENDING", STREAM, "a")["pending"] == 3 - moved
            assert len(await rows(parts.store, "messages")) == moved
        assert await broker.reclaim("slow", is_dead=True) == 3


async def test_what_a_process_held_that_is_gone_is_handled_alone_by_another(
    state: Path, redis: RedisServer
) -> None:
    """It may have killed it; and nothing of the process stays in Redis."""
    async with on_redis(prepared(state, redis)) as parts:
        ids = await relayed(parts, 3, "a")
        assert len(await parts.claim("a", owner="dead")) == 3
        await parts.store.run(lambda tx: tx.execute("process.leave", id="dead"))
        await parts.reconciler.run_once()
        assert redis.execute("XPENDING", STREAM, "a")["pending"] == 0
        assert redis.execute("XINFO CONSUMERS", STREAM, "a") == []
        broker, found = await parts.process(), list[str]()
        assert await broker.reclaim("dead", is_dead=True) == 3
        for _ in range(3):
            (message,) = await parts.claim_alone("a")
            assert message.suspect and message.attempt == 1
            found.append(message.event_id)
            await parts.settle([message])
        assert same(found, ids)
        assert not is_left(await parts.store.read(read_backlog), ["a"])
