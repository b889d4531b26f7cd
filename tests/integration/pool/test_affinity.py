"""Sessions that prefer a worker, with real ones: what a call does while that is busy."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.integration.pool.workers import Workers, workers
from tests.waiting import until

from cordata.errors import PreferredWorkerBusy
from cordata.pool import Call, Client
from cordata.pool.shared.protocol import Affinity


@asynccontextmanager
async def two_workers(tmp_path: Path) -> AsyncIterator[tuple[Workers, Client]]:
    with workers(tmp_path) as pool, pool.worker("0"), pool.worker("1"):
        async with Client(pool.path, timeout=60.0) as client:
            yield pool, client


async def held(client: Client, pool: Workers, worker: str) -> Call:
    """A call that keeps the child of this worker busy."""
    pin = await client.sessions.create(worker=worker, affinity="strict_queue")
    call = client.start("wait", 60.0, session=pin.id)
    await asyncio.to_thread(until, lambda: (worker, "wait") in pool.running())
    return call


async def pid_of(client: Client, worker: str) -> int:
    pin = await client.sessions.create(worker=worker, affinity="strict_queue")
    return int((await client.execute("about", session=pin.id))["pid"])


@pytest.mark.parametrize("affinity", ["hint", "strict_queue", "strict_fail"])
async def test_session_runs_at_its_worker_and_only_the_hint_runs_elsewhere(
    tmp_path: Path, affinity: Affinity
) -> None:
    async with two_workers(tmp_path) as (pool, client):
        pids = [await pid_of(client, worker) for worker in "01"]
        session = (await client.sessions.create(affinity=affinity, worker="1")).id
        for _ in range(10):
            assert (await client.execute("about", session=session))["pid"] == pids[1]
        holding = await held(client, pool, "1")
        if affinity == "strict_fail":
            with pytest.raises(PreferredWorkerBusy):
                await client.execute("about", session=session)
        elif affinity == "hint":
            assert (await client.execute("about", session=session))["pid"] == pids[0]
        else:
            waiting = client.start("about", session=session)
            await client.execute("about")  # it has had the time
            assert not waiting.done()
            holding.cancel()
            assert (await waiting)["pid"] == pids[1]
        assert holding.done() is (affinity == "strict_queue")
        holding.cancel()


async def test_strict_session_is_found_by_a_client_that_never_saw_it(tmp_path: Path) -> None:
    async with two_workers(tmp_path) as (pool, client):
        pids = [await pid_of(client, worker) for worker in "01"]
        for worker in "01":
            made = await client.sessions.create(affinity="strict_queue", worker=worker)
            async with Client(pool.path, timeout=60.0) as other:
                for _ in range(4):
                    found = (await other.execute("about", session=made.id))["pid"]
                    assert found == pids[int(worker)]


async def test_first_worker_becomes_the_sessions_own_and_keeps_it_over_its_childs_death(
    tmp_path: Path,
) -> None:
    async with two_workers(tmp_path) as (_, client):
        session = (await client.sessions.create()).id
        first = (await client.execute("about", session=session))["pid"]
        worker = (await client.sessions.get(session)).worker
        assert worker in ("0", "1") and first == await pid_of(client, worker)
        os.kill(first, signal.SIGKILL)
        await client.sessions.update(session, affinity="strict_queue")
        second = (await client.execute("about", session=session, idempotent=True))["pid"]
        assert second != first and second == await pid_of(client, worker)


async def test_session_of_a_worker_runs_in_any_of_its_children(tmp_path: Path) -> None:
    with workers(tmp_path, "children = 2\n") as pool, pool.worker("0"):
        async with Client(pool.path, timeout=20.0) as client:
            known = set[int]()
            while len(known) < 2:  # the client has a connection to each of them
                calls = [client.start("about", 0.05) for _ in "ab"]
                known.update([about["pid"] for about in await asyncio.gather(*calls)])
            pins = [await client.sessions.create(worker="0", affinity="strict_queue") for _ in "ab"]
            firsts = [await client.sessions.create(affinity="strict_queue") for _ in "ab"]
            for sessions in (pins, firsts):
                calls = [client.start("about", 1.0, session=session.id) for session in sessions]
                assert len({about["pid"] for about in await asyncio.gather(*calls)}) == 2
                for session in sessions:
                    assert (await client.sessions.get(session.id)).worker == "0"
