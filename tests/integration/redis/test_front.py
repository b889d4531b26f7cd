"""What one process has of the streams: after a lost connection, beside full places, for others."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.engine.parts import publish
from tests.integration.redis.parts import on_redis
from tests.integration.redis.stores import PREFIX, use
from tests.servers.redis import RedisServer

STREAM = f"{PREFIX}:stream:thing.done:normal"


@pytest.fixture
def state(tmp_path: Path, redis: RedisServer) -> Path:
    use(tmp_path, redis.url)
    return tmp_path


async def test_lost_answer_is_made_up_for_when_another_ones_hands_come_first(
    state: Path, redis: RedisServer
) -> None:
    """What is taken back for a dead process may be the first on a new connection."""
    async with on_redis(state) as parts:
        await parts.broker.register({"a": "thing.done"})
        ids = await publish(parts.store, 5)
        await parts.relay_all()
        first = await parts.claim("a", 2)
        # As if it had asked for them, and the connection was lost before the answer came.
        redis.execute("XREADGROUP", "GROUP", "a", "me", "COUNT", 2, "STREAMS", STREAM, ">")
        redis.execute("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        assert await parts.broker.held("dead", limit=10) == []  # notices that it is lost
        await parts.broker.exchange("dead", [], {})
        again = await parts.claim("a")
        assert sorted(m.event_id for m in [*first, *again]) == sorted(ids)
