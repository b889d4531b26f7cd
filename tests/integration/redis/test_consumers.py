"""Who stands in XINFO CONSUMERS."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.integration.engine.parts import publish
from tests.integration.redis.parts import on_redis, server_of
from tests.integration.redis.stores import PREFIX, use
from tests.servers.redis import RedisServer

from cordata.broker.redis import pending
from cordata.broker.redis.state import load
from cordata.broker.redis.stream import Keys

STREAM = f"{PREFIX}:stream:thing.done:normal"


async def test_consumer_of_a_host_that_is_gone_goes_when_it_holds_nothing(
    tmp_path: Path, redis: RedisServer
) -> None:
    use(tmp_path, redis.url)
    async with on_redis(tmp_path) as parts:
        await parts.broker.register({"a": "thing.done"})
        await publish(parts.store, 3)
        await parts.relay_all()
        held = await parts.claim("a", 2, owner="holds")
        await parts.finish(await parts.claim("a", owner="empty"), owner="empty")

        def names() -> set[str]:
            found = redis.execute("XINFO CONSUMERS", STREAM, "a")
            # As they come, or as a client that knows the command makes them.
            facts = [one if isinstance(one, dict) else _pairs(one) for one in found]
            return {str(one["name"]) for one in facts}

        assert names() == {"holds", "empty"}
        server, keys = server_of(redis.url), Keys(PREFIX)
        pairs = (await parts.store.read(load)).committed
        await pending.remove_unused_consumers(server, keys, pairs)
        assert names() == {"holds", "empty"}  # they were there a moment ago
        await asyncio.sleep(0.05)
        await pending.remove_unused_consumers(server, keys, pairs, gone_s=0.02)
        assert names() == {"holds"}
        await parts.finish(held, owner="holds")
        await asyncio.sleep(0.05)
        await pending.remove_unused_consumers(server, keys, pairs, gone_s=0.02)
        assert names() == set()
        server.close()
        await publish(parts.store, 1)
        await parts.relay_all()
        assert len(await parts.claim("a", owner="empty")) == 1  # it was only quiet


def _pairs(flat: list[object]) -> dict[object, object]:
    return dict(zip(flat[::2], flat[1::2], strict=True))
