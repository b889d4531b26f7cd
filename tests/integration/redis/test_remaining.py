"""What is left to do, while messages move."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from pathlib import Path

from tests.integration.engine.parts import publish
from tests.integration.redis.parts import RedisParts, on_redis
from tests.integration.redis.stores import use
from tests.servers.redis import RedisServer

from cordata.broker.message import Depth
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

        async def moves() -> None:
            await parts.settle(messages, Verdict.RETRY)

        when_redis_is_asked(parts, moves)
        assert (await parts.broker.depth(["a"])).ready


async def test_event_is_seen_when_it_moves_to_redis_after_that_was_looked_at(
    tmp_path: Path, redis: RedisServer
) -> None:
    use(tmp_path, redis.url)
    async with on_redis(tmp_path) as parts:
        await taken(parts, 1)
        await parts.finish(await parts.claim("a"))
        assert await parts.broker.depth(["a"]) == NOTHING

        async def publishes() -> None:
            await publish(parts.store, 1)  # as a handler does
            await parts.relay_all()

        when_redis_is_asked(parts, publishes, before=False)
        assert (await parts.broker.depth(["a"])).outbox


def when_redis_is_asked(
    parts: RedisParts, happens: Callable[[], Awaitable[None]], *, before: bool = True
) -> None:
    """Something happens right before the broker asks Redis for the backlog, or right after."""
    consumer = parts.broker._consumer
    ask = consumer.backlog

    async def backlog(groups: Collection[str]) -> tuple[bool, bool]:
        if before:
            await happens()
        found = await ask(groups)
        if not before:
            await happens()
        return found

    consumer.backlog = backlog  # type: ignore[method-assign]
