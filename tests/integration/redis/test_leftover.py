"""Back from Redis to the store: what was on its way, or in a stream, is handled by its groups."""

from __future__ import annotations

from pathlib import Path

from tests.integration.engine.parts import opened, publish, registered, rows
from tests.integration.redis.parts import on_redis
from tests.integration.redis.stores import use
from tests.servers.redis import RedisServer

from cordata.broker import ClaimLimit, Queue
from cordata.broker.inspection import Outbox
from cordata.core.message_state import Verdict
from cordata.services.leftover import LeftoverService


async def test_groups_get_in_the_store_what_they_have_not_handled(
    state: Path, redis: RedisServer
) -> None:
    use(state, redis.url)
    async with on_redis(state) as parts:
        groups = {"a": "thing.done", "b": "thing.done"}
        await parts.register(groups)
        streamed = await publish(parts.store, 3)
        assert await parts.relay_all() == 3
        messages = await parts.claim("a")  # the third stays in its hands
        done, failed = messages[:2]
        await parts.settle([done])
        await parts.settle([failed], Verdict.RETRY)
        waiting = await publish(parts.store, 1)
        (later,) = await publish(parts.store, 1, delay_s=3600.0)

        service = LeftoverService(parts.store)
        # Of a: one from the stream, and two that waited; of b: all. What failed is there already.
        assert await service.run_once() == 3 + 5
        assert await service.run_once() == 0

        queue = Queue(parts.store, owner="me", retries=dict.fromkeys(groups, 5))
        wants = {group: ClaimLimit(count=10, low=10) for group in groups}
        found = (await queue.settle_and_claim([], wants)).messages
        of = {group: {m.event_id for m in found if m.group == group} for group in groups}
        assert of == {"a": {*streamed, *waiting} - {done.event_id}, "b": {*streamed, *waiting}}
        assert {m.attempt for m in found if m.event_id == failed.event_id} == {1, 2}
        left = [row for row in await rows(parts.store, "messages") if row["state"] == "scheduled"]
        assert [row["event_id"] for row in left] == [later, later]
        (new,) = await publish(parts.store, 1)
        entry = await Outbox(parts.store).get(new)
        assert entry is not None
        assert [(one["group"], one["state"]) for one in entry.groups] == [
            ("a", "ready"),
            ("b", "ready"),
        ]


async def test_store_that_never_had_redis_is_left_alone(state: Path) -> None:
    async with opened(state) as store:
        await registered(store, {"a": "thing.done"})
        await publish(store, 2)
        assert await LeftoverService(store).run_once() == 0
        assert {row["group"] for row in await rows(store, "messages")} == {"a"}
