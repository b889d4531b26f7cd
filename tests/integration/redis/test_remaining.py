"""What is left to do, while messages move."""

from __future__ import annotations

from pathlib import Path

from tests.integration.engine.parts import publish
from tests.integration.redis.parts import RedisParts, on_redis
from tests.integration.redis.stores import use
from tests.servers.redis import RedisServer

from cordata.broker import StoreBroker
from cordata.broker.message import Depth
from cordata.broker.redis import remaining
from cordata.core.delivery import Verdict

NOTHING = Depth(outbox=False, ready=False, claimed=False, dead=0)


async def taken(parts: RedisParts, count: int) -> None:
    await parts.broker.register({"a": "thing.done"})
    await publish(parts.store, count)
    await parts.relay_all()


async def test_message_is_seen_when_it_moves_to_the_store_before_redis_is_looked_at(
    tmp_path: Path, redis: RedisServer
) -> None:
    use(tmp_path, redis.url)
    async with on_redis(tmp_path) as parts:
        await taken(parts, 1)
        messages = await parts.claim("a")
        inner = StoreBroker(parts.store, claim_timeout_s=60.0)
        assert await inner.depth(["a"]) == NOTHING

        async def look() -> tuple[bool, bool]:
            await parts.settle(messages, Verdict.RETRY)
            return False, False

        assert (await remaining.depth(parts.store, inner, ["a"], look)).ready


async def test_event_is_seen_when_it_moves_to_redis_after_that_was_looked_at(
    tmp_path: Path, redis: RedisServer
) -> None:
    use(tmp_path, redis.url)
    async with on_redis(tmp_path) as parts:
        await taken(parts, 1)
        inner = StoreBroker(parts.store, claim_timeout_s=60.0)

        async def look() -> tuple[bool, bool]:
            await publish(parts.store, 1)  # as a handler does
            await parts.relay_all()
            return False, False

        assert (await remaining.depth(parts.store, inner, ["a"], look)).outbox

        async def quiet() -> tuple[bool, bool]:
            return False, False

        assert await remaining.depth(parts.store, inner, ["a"], quiet) == NOTHING
