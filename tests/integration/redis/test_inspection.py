"""What an operator sees of an event that goes through Redis."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.engine import stores
from tests.integration.engine.parts import publish
from tests.integration.redis.parts import RedisParts, on_redis
from tests.integration.redis.stores import use
from tests.servers.redis import RedisServer

from cordata.broker import StoreBroker, Want
from cordata.broker.inspection import DeadLetters, Filter, Outbox, publish_again
from cordata.context import Context
from cordata.core.delivery import Verdict
from cordata.services.leftover import LeftoverService
from cordata.services.primary import Leadership
from cordata.vault import Vault


@pytest.fixture(params=stores.STORES)
def place(request: pytest.FixtureRequest, tmp_path: Path, redis: RedisServer) -> Path:
    """A state directory of each store, with Redis beside it."""
    stores.prepared(request.param, request, tmp_path)
    use(tmp_path, redis.url)
    return tmp_path


async def states(parts: RedisParts, event_id: str) -> dict[str, str]:
    entry = await Outbox(parts.store).get(event_id)
    assert entry is not None
    found = [(group["group"], group["state"]) for group in entry.groups]
    assert len(found) == len(dict(found))
    return dict(found)


async def test_entry_tells_what_became_of_it_in_each_group(place: Path) -> None:
    async with on_redis(place) as parts:
        groups = ["failed", "keyed", "quiet", "slow", "wrote"]
        await parts.broker.register(dict.fromkeys(groups, "thing.done"), keyed=["keyed"])
        [event_id] = await publish(parts.store, 1, key="k")
        assert await states(parts, event_id) == {}
        assert await parts.relay_all() == 1
        streams = ["failed", "quiet", "slow", "wrote"]
        expected = {**dict.fromkeys(streams, "in stream"), "keyed": "ready"}
        assert await states(parts, event_id) == expected

        await parts.finish(await parts.claim("quiet"))
        await parts.settle(await parts.claim("failed"), Verdict.DEAD)
        async with parts.store.transaction(seen=("wrote", event_id)):
            pass
        await parts.finish(await parts.claim("wrote"))
        await parts.reconciler.run_once()
        later = {"failed": "dead", "keyed": "ready", "quiet": "handled", "slow": "in stream"}
        assert await states(parts, event_id) == {**later, "wrote": "handled"}


async def test_group_that_came_later_has_not_handled_what_was_published_before(
    place: Path,
) -> None:
    async with on_redis(place) as parts:
        await parts.broker.register({"first": "thing.done"})
        [event_id] = await publish(parts.store, 1)
        await parts.relay_all()
        await parts.finish(await parts.claim("first"))
        await parts.broker.register({"first": "thing.done", "later": "thing.done"})
        await publish(parts.store, 1)
        await parts.relay_all()
        await parts.finish(await parts.claim("later"))
        await parts.reconciler.run_once()
        assert await states(parts, event_id) == {"first": "handled"}
        found = await publish_again(parts.store, Filter(event_id=event_id), group="later")
        assert found.messages == 1
        assert await states(parts, event_id) == {"first": "handled", "later": "ready"}


async def test_replay_gives_the_store_what_redis_still_held_when_that_is_the_broker_again(
    place: Path,
) -> None:
    async with on_redis(place) as parts:
        await parts.broker.register(dict.fromkeys(["a", "b"], "thing.done"))
        ids = await publish(parts.store, 3)
        await parts.relay_all()
        async with parts.store.transaction(seen=("a", ids[0])):
            pass
        await parts.finish((await parts.claim("a"))[:1])
        found = await publish_again(parts.store, Filter())
        assert (found.entries, found.messages, found.left) == (3, 5, 1)
        broker = StoreBroker(parts.store, claim_timeout_s=60.0)
        wanted = {group: Want(live=10) for group in ("a", "b")}
        claimed = (await broker.exchange("me", [], wanted)).messages
        messages = sorted((message.group, message.event_id) for message in claimed)
        assert messages == sorted([("a", ids[1]), ("a", ids[2]), *(("b", one) for one in ids)])


async def test_primary_on_the_store_counts_what_was_left_in_redis_until_it_is_replayed(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with on_redis(place) as parts:
        leftover = LeftoverService(Leadership())
        ctx = Context(store=parts.store, vault=Vault(None))
        await parts.broker.register(dict.fromkeys(["a", "b"], "thing.done"))
        assert await leftover.run_once(ctx) == 0
        ids = await publish(parts.store, 4)
        await parts.relay_all()
        await parts.finish(await parts.claim("a"))
        await parts.finish((await parts.claim("b"))[:1])
        await parts.reconciler.run_once()
        assert await leftover.run_once(ctx) == 3
        assert "3 events were handed to Redis" in caplog.text
        assert "cordata outbox replay --all" in caplog.text
        caplog.clear()
        assert (await publish_again(parts.store, Filter())).messages == len(ids) - 1
        assert await leftover.run_once(ctx) == 0
        assert not caplog.text


async def test_replay_leaves_what_was_handled_in_a_stream_without_a_trace(place: Path) -> None:
    """As on the store, where whatever is handled leaves a seen-mark; but for who asks for it."""
    async with on_redis(place) as parts:
        await parts.broker.register(dict.fromkeys(["a", "b"], "thing.done"))
        ids = await publish(parts.store, 3)
        await parts.relay_all()
        await parts.finish(await parts.claim("a"))
        await parts.settle(await parts.claim("b"), Verdict.DEAD)
        await parts.reconciler.run_once()
        found = await publish_again(parts.store, Filter())
        assert (found.entries, found.messages, found.left) == (3, 0, 6)
        assert await parts.claim("a") == await parts.claim("b") == []

        found = await publish_again(parts.store, Filter(), group="a", again=True)
        assert (found.entries, found.messages, found.left) == (3, 3, 0)
        again = await parts.claim("a")
        assert sorted(message.event_id for message in again) == sorted(ids)
        await parts.finish(again)
        assert await DeadLetters(parts.store).replay(Filter()) == 3
        assert len(await parts.claim("b")) == 3 and await parts.claim("a") == []
