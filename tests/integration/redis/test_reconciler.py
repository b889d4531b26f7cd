"""Positions, trimming, and what the primary does when Redis lost data."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.integration.engine.parts import publish, rows, until
from tests.integration.redis.parts import RedisParts, on_redis
from tests.integration.redis.stores import PREFIX, use
from tests.servers.redis import RedisServer

from cordata import clock
from cordata.broker import Message
from cordata.broker.redis.state import load
from cordata.broker.redis.stream import position_of
from cordata.core.delivery import Verdict
from cordata.errors import BrokerUnavailable
from cordata.store import Tx

STREAM = f"{PREFIX}:stream:thing.done:normal"


def prepared(state: Path, server: RedisServer) -> Path:
    use(state, server.url)
    return state


async def relayed(parts: RedisParts, count: int, *groups: str) -> list[str]:
    await parts.broker.register(dict.fromkeys(groups, "thing.done"))
    ids = await publish(parts.store, count)
    assert await parts.relay_all() == count
    return ids


def events(messages: Sequence[Message]) -> list[str]:
    return [message.event_id for message in messages]


def same(one: Sequence[str], other: Sequence[str]) -> bool:
    """In whatever order: ids of one millisecond have none."""
    return sorted(one) == sorted(other)


async def committed(parts: RedisParts) -> dict[str, int]:
    state = await parts.store.read(load)
    return {pair.group: position for pair, position in state.committed.items()}


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
        await parts.finish(await parts.claim("fast"))
        some = await parts.claim("slow", 5)
        await parts.finish(some[:2])
        await parts.reconciler.run_once()
        assert redis.execute("XLEN", STREAM) == 8
        await parts.finish(some[2:])
        await parts.finish(await parts.claim("slow"))
        assert await parts.reconciler.run_once()
        assert redis.execute("XLEN", STREAM) == 0
        assert not await parts.reconciler.run_once()  # nothing moves any more


async def test_mark_stays_below_what_is_in_somebodys_hands(state: Path, redis: RedisServer) -> None:
    async with on_redis(prepared(state, redis)) as parts:
        await relayed(parts, 10, "a")
        messages = await parts.claim("a")
        await parts.finish(messages[5:])
        await parts.finish(messages[:2])
        await parts.reconciler.run_once()
        third = position_of(str(messages[2].id).rpartition("/")[2].encode())
        assert (await committed(parts))["a"] == third - 1
        await parts.settle(messages[2:5], Verdict.BACK)  # in the store from now on
        await parts.reconciler.run_once()
        assert (await committed(parts))["a"] > third


async def test_only_what_a_group_has_not_done_comes_again_when_redis_is_emptied(
    state: Path, redis: RedisServer
) -> None:
    async with on_redis(prepared(state, redis)) as parts:
        ids = await relayed(parts, 10, "a", "b")
        await parts.finish(await parts.claim("a", 4))
        await parts.reconciler.run_once()
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
        ([("DEL", STREAM)], "its last thing.done is an older one"),
        (
            [("DEL", STREAM), ("XGROUP", "CREATE", STREAM, "a", "0", "MKSTREAM")],
            "its last thing.done is an older one",
        ),
        ([("XGROUP", "DESTROY", STREAM, "a")], "it does not know a"),
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
        await parts.finish(done)
        await parts.reconciler.run_once()
        assert "lost data" not in caplog.text
        for command in harm:
            assert redis.execute(*command)
        await parts.reconciler.run_once()
        assert f"Redis lost data, or may have: {reason}; recovering" in caplog.text
        assert same(events(await parts.claim("a")), [id_ for id_ in ids if id_ not in events(done)])
        new = await relayed(parts, 2)
        assert same(events(await parts.claim("a")), new)


async def test_done_but_unmarked_comes_again_and_its_seen_mark_tells(
    state: Path, redis: RedisServer
) -> None:
    """Handled since the last pass: with an effect it is known as done, without one it is not."""
    async with on_redis(prepared(state, redis)) as parts:
        ids = await relayed(parts, 4, "a")
        messages = await parts.claim("a")
        for message in messages[:2]:
            async with parts.store.transaction(seen=("a", message.event_id)):
                pass
        await parts.finish(messages)
        redis.empty()
        await parts.reconciler.run_once()
        assert same(events(await parts.claim("a")), ids[2:])


async def test_acknowledgement_that_finds_nothing_leaves_a_mark(
    state: Path, redis: RedisServer
) -> None:
    """Handled while Redis lost it: it is not handled again."""
    async with on_redis(prepared(state, redis)) as parts:
        await relayed(parts, 4, "a")
        messages = await parts.claim("a")
        redis.empty()
        await parts.finish(messages)
        assert (await rows(parts.store, "seen_count"))[0]["count"] == 4
        await parts.reconciler.run_once()
        assert await parts.claim("a") == []


async def test_what_is_still_in_its_stream_is_not_published_again(
    state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with RedisServer(appendonly=True, config={"appendfsync": "always"}) as server:
        async with on_redis(prepared(state, server)) as parts:
            ids = await relayed(parts, 10, "a")
            await parts.finish((await parts.claim("a"))[:3])
            server.restart()
            await keep(parts)
            assert await rows(parts.store, "messages") == []
            # What it has in hand is in its name still: it goes on, or is taken back from there.
            held = await parts.broker.held("me", limit=100)
            assert len(held) == 7 and len(ids) == 10


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
            assert (await parts.broker.depth(["a"])).dead == 1


async def test_new_ids_are_behind_the_old_ones_whatever_the_servers_clock_says(
    state: Path, redis: RedisServer
) -> None:
    async with on_redis(prepared(state, redis)) as parts:
        await relayed(parts, 1, "a")
        await parts.finish(await parts.claim("a"))
        future = f"{clock.now_us() // 1000 + 3_600_000}-7"
        redis.execute("XSETID", STREAM, future)
        await parts.reconciler.run_once()
        redis.empty()
        await parts.reconciler.run_once()
        ids = await relayed(parts, 2, "a")
        messages = await parts.claim("a")
        assert events(messages) == ids
        positions = [position_of(str(m.id).rpartition("/")[2].encode()) for m in messages]
        assert positions[0] > position_of(future.encode())
        await parts.finish(messages)
        await parts.reconciler.run_once()
        assert (await committed(parts))["a"] == positions[-1]


async def test_relay_waits_until_the_primary_has_looked_through_a_new_redis(
    state: Path, redis: RedisServer
) -> None:
    async with on_redis(prepared(state, redis)) as parts:
        ids = await relayed(parts, 1, "a")
        redis.empty()
        ids += await publish(parts.store, 2)
        with pytest.raises(BrokerUnavailable, match="primary"):
            await parts.relay_all()
        (row,) = [r for r in await rows(parts.store, "outbox_states") if r["state"] == "pending"]
        assert row["count"] == 2  # given back: any relay may go on
        await parts.reconciler.run_once()
        assert await parts.relay_all() == 2
        assert same(events(await parts.claim("a")), ids)


async def test_entry_is_given_back_when_redis_changed_between_add_and_mark(
    state: Path, redis: RedisServer
) -> None:
    """A relay that was cut off marks nothing as published that the primary has not seen."""
    async with on_redis(prepared(state, redis)) as parts:
        await relayed(parts, 1, "a")
        publisher = parts.broker._publisher
        publisher._marks.add(publisher._state, [[1, 1 << 40]])

        async def processing(tx: Tx) -> None:
            await tx.execute("redis.distrust")

        await parts.store.run(processing)
        await publisher._marks.flush()
        states = {r["state"]: r["count"] for r in await rows(parts.store, "outbox_states")}
        assert states == {"published": 1}


async def test_group_that_is_forgotten_no_longer_holds_entries_back(
    state: Path, redis: RedisServer
) -> None:
    async with on_redis(prepared(state, redis)) as parts:
        await relayed(parts, 5, "a", "gone")
        await parts.finish(await parts.claim("a"))
        await parts.reconciler.run_once()
        assert redis.execute("XLEN", STREAM) == 5

        async def forget(tx: Tx) -> None:
            await tx.execute("age_group", at=0, group="gone")
            await tx.execute("retention.group", before=1)

        await parts.store.run(forget)
        await parts.reconciler.run_once()
        await parts.reconciler.run_once()
        assert redis.execute("XLEN", STREAM) == 0
        names = [facts["name"] for facts in redis.execute("XINFO GROUPS", STREAM)]
        assert names == ["a"] and (await committed(parts)).keys() == {"a"}


async def test_group_reads_its_old_stream_to_the_end_when_it_handles_another_type(
    state: Path, redis: RedisServer
) -> None:
    async with on_redis(prepared(state, redis)) as parts:
        ids = await relayed(parts, 2, "a")
        await parts.broker.register({"a": "other.type"})
        ids += await publish(parts.store, 2, type_="other.type")
        await parts.relay_all()
        await parts.reconciler.run_once()
        messages = await parts.claim("a")
        assert same(events(messages), ids)
        await parts.finish(messages)
        await parts.reconciler.run_once()
        assert len((await parts.store.read(load)).committed) == 1


async def test_outbox_keeps_what_a_group_has_not_taken_yet(state: Path, redis: RedisServer) -> None:
    async def old(tx: Tx) -> int:
        page = await tx.fetch_all("retention.outbox_page", after=0, before=2**62, limit=100)
        return sum(bool(row["old"]) for row in page)

    async with on_redis(prepared(state, redis)) as parts:
        await relayed(parts, 6, "a")
        await parts.finish(await parts.claim("a", 4))
        assert await parts.store.read(old) == 0
        await parts.reconciler.run_once()
        assert await parts.store.read(old) == 4


async def test_failure_is_kept_though_its_outbox_entry_was_deleted(
    state: Path, redis: RedisServer
) -> None:
    async with on_redis(prepared(state, redis)) as parts:
        (event_id,) = await relayed(parts, 1, "a")
        (message,) = await parts.claim("a")

        async def delete(tx: Tx) -> None:
            assert await tx.execute("retention.outbox", ids="[1]") == 1

        await parts.store.run(delete)
        await parts.settle([message], Verdict.RETRY)
        (again,) = await parts.claim("a")
        assert (again.event_id, again.payload) == (event_id, message.payload)
