"""What an operator sees of events that go through Redis: see tests/integration/engine, too."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.engine.parts import publish
from tests.integration.redis.parts import RedisParts, on_redis
from tests.integration.redis.stores import use
from tests.servers.redis import RedisServer

from cordata.broker.inspection import Filter, Outbox
from cordata.core.message_state import Verdict


@pytest.fixture
def state(state: Path, redis: RedisServer) -> Path:
    use(state, redis.url)
    return state


async def seen(parts: RedisParts, event_id: str) -> tuple[str, dict[str, str]]:
    """State of the event, and of each group."""
    entry = await Outbox(parts.store).get(event_id)
    assert entry is not None
    return entry.state, {group["group"]: group["state"] for group in entry.groups}


async def test_event_is_followed_through_redis(state: Path) -> None:
    """The relay is no group that an operator knows."""
    async with on_redis(state) as parts:
        await parts.register({"a": "thing.done", "b": "thing.done", "k": "thing.done"}, keyed="k")
        (event,) = await publish(parts.store, 1)
        (later,) = await publish(parts.store, 1, delay_s=3600.0)
        assert await seen(parts, event) == ("pending", {"a": "ready", "b": "ready", "k": "ready"})
        assert (await seen(parts, later))[1] == dict.fromkeys("abk", "scheduled")
        assert await parts.relay_all() == 1
        assert (await seen(parts, event))[1] == {"a": "relayed", "b": "relayed", "k": "ready"}
        await parts.settle(await parts.claim("k"))
        assert await seen(parts, event) == (
            "relayed",
            {"a": "relayed", "b": "relayed", "k": "handled"},
        )
        await parts.settle(await parts.claim("a"))
        await parts.settle(await parts.claim("b"), Verdict.DEAD)
        assert await seen(parts, event) == ("dead", {"a": "handled", "b": "dead", "k": "handled"})


async def test_events_of_a_group_are_listed_while_they_are_in_its_stream(state: Path) -> None:
    async with on_redis(state) as parts:
        await parts.register({"a": "thing.done", "other": "thing.else"})
        ids = await publish(parts.store, 2)
        await publish(parts.store, 1, type_="thing.else")
        assert await parts.relay_all() == 3
        await parts.settle((await parts.claim("a"))[:1])
        page = await Outbox(parts.store).page(Filter(group="a"), limit=10)
        assert sorted(entry.event_id for entry in page.items) == sorted(ids)
        assert sorted(entry.state for entry in page.items) == ["done", "relayed"]
        page = await Outbox(parts.store).page(Filter(group="a", state="relayed"), limit=10)
        assert len(page.items) == 1
