"""What one process has of the streams: after a lost connection, beside full places, for others."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from tests.integration.engine.parts import publish
from tests.integration.redis.parts import broker_of, on_redis
from tests.integration.redis.stores import PREFIX, use
from tests.servers.redis import RedisServer

from cordata.broker import Outcome, Want
from cordata.core.delivery import Verdict

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


async def test_nothing_is_kept_of_a_process_that_was_slow_and_has_settled_all(
    state: Path, redis: RedisServer
) -> None:
    async with on_redis(state) as parts:
        await parts.broker.register({"a": "thing.done"})
        await publish(parts.store, 3)
        await parts.relay_all()
        with closing(broker_of(parts.store, redis.url, owner="slow")) as slow:
            messages = (await slow.exchange("slow", [], {"a": Want(live=10)})).messages
            assert len(await parts.broker.held("slow", limit=10)) == 3
            assert await parts.broker.owners(["slow"]) == {"slow": False}
            done = [
                Outcome(group=m.group, id=m.id, verdict=Verdict.DONE, event_id=m.event_id)
                for m in messages
            ]
            await slow.exchange("slow", done, {})
        assert await parts.broker.owners(["slow"]) == {}
        assert "slow" not in parts.broker._consumer._owned
