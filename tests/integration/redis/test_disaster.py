"""What may happen to Redis under load: each event has its effect exactly once, nothing strands.

There is always a backlog in the streams: 4 handlers of 10 ms in each of two workers are slower than
the events come.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.integration.engine.children import child
from tests.integration.engine.parts import until
from tests.integration.redis.load import GROUP, WORKER, Load, load_on
from tests.servers.redis import RedisServer, available, wait_for_offset
from tests.servers.sentinel import Sentinel

SLOW = {"slow_s": 0.01}


@asynccontextmanager
async def loaded(state: Path, url: str) -> AsyncIterator[Load]:
    """Two workers, a backlog, and more coming while inside; then what must hold."""
    async with load_on(state, url) as load:
        await load.publish(1500, **SLOW)
        async with asyncio.TaskGroup() as group:
            group.create_task(load.feed(4.0, rate=200, **SLOW))
            await load.some(100)
            yield load
        took_s = await load.settled(timeout_s=180)
        print(f"settled {took_s:.2f} s after the load")


def lost(log: pytest.LogCaptureFixture) -> int:
    """How many messages the primary published again."""
    found = [r.args for r in log.records if r.msg.startswith("republished %d messages")]
    return sum(args[0] for args in found if isinstance(args, tuple))  # type: ignore[misc]


async def killed(server: RedisServer) -> None:
    """It had saved nothing, and is away for a moment."""
    server.kill()
    await asyncio.sleep(0.5)
    server.start()


async def emptied_twice(server: RedisServer) -> None:
    """The second time while the first is made good."""
    server.empty()
    await asyncio.sleep(1.0)
    server.empty()


@pytest.mark.parametrize("program", available())
@pytest.mark.parametrize("happens", [killed, emptied_twice])
async def test_nothing_is_lost_when_redis_has_nothing_any_more(
    state: Path,
    caplog: pytest.LogCaptureFixture,
    happens: Callable[[RedisServer], Awaitable[None]],
    program: str,
) -> None:
    with RedisServer(program=program) as server:
        async with loaded(state, server.url) as load:
            await load.pile_up(1000, **SLOW)
            await happens(server)
    assert lost(caplog) > 500


async def test_little_is_published_again_when_redis_is_killed_and_had_an_appendonly_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with RedisServer(appendonly=True) as server:
        async with loaded(tmp_path, server.url):
            for pause_s in (1.0, 0.0):  # the second time before it has settled
                await until(server.all_written)  # a slow sync may hold back seconds of the file
                server.kill()
                server.start()
                await asyncio.sleep(pause_s)
    assert lost(caplog) < 400  # a second's worth is not on disk


@pytest.mark.parametrize("program", available())
async def test_nothing_is_lost_or_doubled_when_redis_goes_back_in_time(
    state: Path, caplog: pytest.LogCaptureFixture, program: str
) -> None:
    """What was acknowledged since the copy comes again; what was added since then is gone."""
    with RedisServer(program=program) as server:
        async with loaded(state, server.url) as load:
            await load.pile_up(1000, **SLOW)
            copy = server.snapshot()
            done = len(await load.effects())
            await load.relayed(await load.publish(300, **SLOW))
            await load.some(done + 200)
            server.roll_back(copy)
    assert lost(caplog) >= 100


async def test_nothing_is_lost_when_a_stream_is_deleted(tmp_path: Path) -> None:
    with RedisServer() as server:
        async with loaded(tmp_path, server.url):
            assert server.execute("DEL", "test:stream:thing.done") == 1


@pytest.mark.parametrize("program", available())
async def test_nothing_is_lost_when_the_master_fails_over_to_a_replica_that_lags(
    state: Path, program: str
) -> None:
    with (
        RedisServer(program=program) as master,
        RedisServer(program=program, replica_of=master) as replica,
    ):
        with Sentinel(master, count=3) as sentinel:
            hosts = ",".join(f"{host}:{port}" for host, port in sentinel.addresses)
            async with loaded(state, f"redis+sentinel://{hosts}/{sentinel.service}/0") as load:
                wait_for_offset(replica, master)
                replica.suspend()
                await load.relayed(await load.publish(300, **SLOW))
                master.kill()
                replica.resume()
                await asyncio.to_thread(sentinel.wait_for_master, replica)


async def test_nothing_is_lost_when_redis_stands_still(tmp_path: Path) -> None:
    """Connections stay open and nothing answers: longer than anybody waits for an answer."""
    with RedisServer() as server:
        async with loaded(tmp_path, server.url) as load:
            server.suspend()
            await asyncio.sleep(6.0)
            server.resume()
            assert [worker.returncode for worker in load.workers] == [None, None]


async def test_nothing_is_lost_when_redis_is_out_of_memory_for_a_while(tmp_path: Path) -> None:
    with RedisServer(config={"maxmemory-policy": "noeviction"}) as server:
        async with loaded(tmp_path, server.url) as load:
            server.execute("CONFIG", "SET", "maxmemory", 100_000)
            await asyncio.sleep(0.2)
            await load.publish(500, **SLOW)
            before = server.info("commandstats")["cmdstat_xadd"]["calls"]
            await asyncio.sleep(2.0)
            waiting = [row for row in await load.messages() if row["group"] == "redis"]
            assert len(waiting) >= 500
            tries = server.info("commandstats")["cmdstat_xadd"]["calls"] - before
            assert tries <= 20 * 100  # a batch now and then, in two workers
            server.execute("CONFIG", "SET", "maxmemory", 0)


async def test_nothing_is_lost_or_strands_when_workers_are_killed_at_random(state: Path) -> None:
    with RedisServer() as server:
        async with load_on(state, server.url) as load:
            await load.publish(1000, **SLOW)
            async with asyncio.TaskGroup() as group:
                group.create_task(load.feed(4.0, rate=200, **SLOW))
                for _ in range(4):
                    await asyncio.sleep(0.7)
                    load.workers.pop(0).kill()
                    worker = await load.start_worker()
                    load.workers.append(worker)
            print(f"settled {await load.settled(timeout_s=180):.2f} s after the load")

            async def are_those_of_the_living() -> bool:
                return await load.consumers(server) <= 2

            await until(are_those_of_the_living)  # those of the dead are gone, too


async def test_nothing_strands_when_workers_stop_under_load(state: Path) -> None:
    """What they have not begun is claimable by others at once, and no attempt was used up."""
    with RedisServer() as server:
        async with load_on(state, server.url) as load:
            await load.publish(500, **SLOW)
            await load.some(50)
            for worker in load.workers:
                assert await worker.stop() == 0
            assert await load.consumers(server) == 0
            summary = server.execute("XPENDING", "test:stream:thing.done", GROUP)
            assert summary["pending"] == 0
            left = [row for row in await load.messages() if row["group"] == GROUP]
            assert {row["attempts"] for row in left} <= {0}
            async with child(WORKER, state) as worker:
                assert await worker.line() == "up"
                await load.settled()
                assert await worker.stop() == 0


async def test_a_worker_that_dies_between_effect_and_acknowledgement_is_made_up_for(
    tmp_path: Path,
) -> None:
    with RedisServer() as server:
        async with load_on(tmp_path, server.url) as load:
            await load.publish(25)
            await load.publish(1, die=True)
            await load.publish(25)

            def killed() -> int:
                return [worker.returncode for worker in load.workers].count(-signal.SIGKILL)

            await until(lambda: killed() == 1)  # which may be told after its effect was seen
            await load.settled()

            def is_acknowledged() -> bool:
                summary = server.execute("XPENDING", "test:stream:thing.done", GROUP)
                return int(summary["pending"]) == 0

            await until(is_acknowledged)
