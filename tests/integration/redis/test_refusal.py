"""Redis answers, but refuses commands: what needs them waits, everything else goes on."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.integration.engine.engine import QUICK
from tests.integration.engine.parts import publish, runtime_of
from tests.integration.redis.parts import broker_of, on_redis
from tests.integration.redis.stores import use
from tests.servers.redis import RedisServer

from cordata.broker import Owner, Owners, Want
from cordata.services.reclaim import ReclaimService


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """One that a test may spoil."""
    with RedisServer(config={"maxmemory-policy": "noeviction"}) as server:
        yield server


@pytest.fixture
def state(tmp_path: Path, server: RedisServer) -> Path:
    use(tmp_path, server.url)
    return tmp_path


async def test_reclaim_ends_and_forgets_nobody_when_redis_runs_no_scripts(
    state: Path, server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    runtime = runtime_of(state)
    async with on_redis(state) as parts:
        await parts.broker.register({"a": "thing.done"})
        await publish(parts.store, 5)
        await parts.relay_all()
        dead, mine = (Owner.register(runtime, name=name) for name in ("dead", "mine"))
        with closing(broker_of(parts.store, server.url)) as other:
            assert len((await other.exchange(dead.id, [], {"a": Want(live=10)})).messages) == 5
            os.close(dead._fd)  # as at its death
            owners = Owners(runtime)
            assert owners.dead(owners.ids()) == [dead.id]
        reclaim = ReclaimService(parts.store, parts.broker, mine, owners, (), QUICK)
        server.execute("ACL", "SETUSER", "default", "-eval")
        for _ in range(2):
            assert await asyncio.wait_for(reclaim.run_once(), 10) == 0
        assert "took back" not in caplog.text
        assert "NOPERM" in caplog.text
        assert dead.id in owners.ids()
        server.execute("ACL", "SETUSER", "default", "+eval")
        assert await reclaim.run_once() == 5
        assert await reclaim.run_once() == 0
        assert owners.ids() == [mine.id]
        assert len(await parts.claim("a")) == 5
        mine.close()
