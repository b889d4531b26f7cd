"""How loans end: by others who call, by a word, and by kill -9 of whoever has part in one."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.pool.lending import MANY, returned, run, warmed
from tests.integration.pool.managing import ENVIRONMENT
from tests.integration.pool.test_together import Together, call, together
from tests.integration.server.managed import Managed
from tests.servers.reaper import watched

from cordata.errors import (
    PoolRestarted,
    WorkerCrashed,
)
from cordata.pool import Client, SyncClient


def test_call_of_another_client_ends_the_loans_and_all_are_served(tmp_path: Path) -> None:
    file = tmp_path / "ran"

    async def go(all_: Together) -> None:
        async with Client(all_.manager.path) as client, Client(all_.manager.path) as other:
            await warmed(client, "note", ["/dev/null", 0, 0.0])
            for round_ in range(5):
                first = 1000 * round_
                calls = [client.start("note", [str(file), first + n, 0.0]) for n in range(100)]
                await asyncio.sleep(0.002 * round_)
                assert await other.execute("note", [str(file), first + 500, 0.0]) == first + 500
                assert [await one for one in calls] == [first + n for n in range(100)]
                await warmed(client, "note", ["/dev/null", 0, 0.0])

    with together(tmp_path) as all_, all_.worker("0"), all_.worker("1"):
        run(go(all_))
        ran = file.read_text().split()
        assert len(ran) == len(set(ran)) == 505
        assert all_.manager.status()["loans"]["made"] >= 4


def test_death_in_a_borrowed_call_is_told_and_takes_no_other_call_along(tmp_path: Path) -> None:
    file = tmp_path / "ran"

    async def go(all_: Together) -> None:
        async with Client(all_.manager.path) as client:
            await warmed(client, "note", ["/dev/null", 0, 0.0])
            await warmed(client, "die", 0)
            before = [client.start("note", [str(file), n, 0.0]) for n in range(40)]
            death = client.start("die", int(signal.SIGSEGV))
            after = [client.start("note", [str(file), n, 0.0]) for n in range(40, 80)]
            with pytest.raises(WorkerCrashed) as caught:
                await death
            assert (caught.value.signal, caught.value.worker) == (int(signal.SIGSEGV), "0")
            assert caught.value.lines[-1] == "last words"
            assert [await one for one in (*before, *after)] == list(range(80))
            assert sorted(map(int, file.read_text().split())) == list(range(80))
            told = all_.manager.status()
            assert told["crashes"] == {"die": 1}
            assert await client.execute("echo", 1) == 1

    with together(tmp_path) as all_, all_.worker():
        run(go(all_))


def test_idempotent_call_is_run_again_when_its_borrowed_child_is_killed(tmp_path: Path) -> None:
    async def go(all_: Together) -> None:
        async with Client(all_.manager.path) as client:
            await warmed(client, "about", None)
            for _ in range(3):
                pid = (await client.execute("about", None))["pid"]
                again = client.start("about", 0.3, idempotent=True)
                once = client.start("about", 0.0)
                await asyncio.sleep(0.1)
                os.kill(pid, signal.SIGKILL)
                assert (await again)["pid"] != pid
                assert (await once)["cancelled"] is False
                await warmed(client, "about", None)

    with together(tmp_path) as all_, all_.worker():
        run(go(all_))
        assert returned(all_)["made"] >= 3


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_borrowed_call_ends_well_though_the_manager_does(
    tmp_path: Path, how: signal.Signals
) -> None:
    file = tmp_path / "ran"

    async def go(all_: Together) -> None:
        async with Client(all_.manager.path) as client:
            await warmed(client, "note", ["/dev/null", 0, 0.0])
            calls = [client.start("note", [str(file), 0, 0.5])]
            calls += [client.start("note", [str(file), n, 0.0]) for n in range(1, 30)]
            await asyncio.sleep(0.1)
            await asyncio.to_thread(all_.manager.end, how)
            all_.manager.start()
            ends = await asyncio.gather(*calls, return_exceptions=True)
            assert ends[0] == 0  # its child had it, and no manager was needed
            if how == signal.SIGTERM:
                assert ends == list(range(30))
            # Behind it they went to the manager, and may have begun when that was killed.
            others = [end for end in ends if not isinstance(end, int)]
            assert all(isinstance(end, PoolRestarted) for end in others), others
            await warmed(client, "note", ["/dev/null", 0, 0.0])

    with together(tmp_path) as all_, all_.worker():
        run(go(all_))
        ran = file.read_text().split()
        assert len(ran) == len(set(ran))
        assert returned(all_)["made"] >= 1


def test_worker_that_stops_or_drains_gives_its_loan_back(tmp_path: Path) -> None:
    async def go(all_: Together, worker: Managed) -> None:
        async with Client(all_.manager.path) as client:
            await warmed(client)
            with SyncClient(all_.manager.path, operator=True) as operator:
                operator.drain("0")
                all_.manager.until(lambda status: status["loans"]["now"] == 1, "one is back")
                pids = {(await client.execute("about", None))["pid"] for _ in range(MANY)}
                assert len(pids) == 1
                operator.drain("0", False)
            await warmed(client)
            all_.manager.until(lambda status: status["loans"]["now"] == 2, "it is lent again")
            calls = [client.start("echo", n) for n in range(1000)]
            code, _ = await asyncio.to_thread(worker.stop)
            assert code == 0
            assert [await one for one in calls] == list(range(1000))

    with together(tmp_path) as all_, all_.worker("1"), all_.worker("0") as worker:
        run(go(all_, worker))


def test_client_that_goes_leaves_nothing_behind(tmp_path: Path) -> None:
    file = tmp_path / "ran"

    async def go(all_: Together) -> None:
        client = Client(all_.manager.path)
        await warmed(client, "note", ["/dev/null", 0, 0.0])
        calls = [client.start("note", [str(file), 0, 0.5])]
        calls += [client.start("note", [str(file), n, 0.0]) for n in range(1, 10)]
        await asyncio.sleep(0.1)
        await client.close()
        assert all(one.done() for one in calls)
        await asyncio.gather(*calls, return_exceptions=True)

    with together(tmp_path) as all_, all_.worker():
        run(go(all_))
        all_.manager.until(lambda status: status["loans"]["now"] == 0, "it is back")
        assert file.read_text().split() == ["0"]
        with all_.manager.client() as client:
            assert call(client, "echo", 1) == 1


KILLED = """
import asyncio, sys
from cordata.pool import Client

async def main(path, file):
    async with Client(path) as client:
        for _ in range(200):
            await client.execute("note", ["/dev/null", 0, 0.0])
        calls = [client.start("note", [file, n, 0.5 if n == 0 else 0.0]) for n in range(10)]
        await asyncio.sleep(0.1)
        print("under way", flush=True)
        await asyncio.gather(*calls)

asyncio.run(main(*sys.argv[1:]))
"""


def test_client_that_is_killed_leaves_nothing_behind(tmp_path: Path) -> None:
    file = tmp_path / "ran"
    with together(tmp_path) as all_, all_.worker():
        argv = [sys.executable, "-c", KILLED, str(all_.manager.path), str(file)]
        caller = watched(subprocess.Popen(argv, env=ENVIRONMENT, stdout=subprocess.PIPE))
        with caller:
            assert caller.stdout is not None
            assert caller.stdout.readline() == b"under way\n"
            assert all_.manager.status()["loans"]["now"] == 1
            caller.kill()
        status = all_.manager.until(
            lambda status: status["loans"]["now"] == 0 and status, "the child is back"
        )
        pool = status["pools"]["default"]
        assert (pool["busy"], pool["waiting"]) == (0, 0)
        # What it had in hand ran to its end, what lay behind it is nobody's.
        assert file.read_text().split() == ["0"]
        with all_.manager.client() as client:
            assert call(client, "echo", 1) == 1


def test_loan_that_is_recalled_in_a_call_ends_with_it(tmp_path: Path) -> None:
    """Nothing else may come that would wake the child."""

    async def go(all_: Together) -> None:
        async with Client(all_.manager.path) as client:
            await warmed(client, "wait", 0.0)
            call = client.start("wait", 1.0, queue_timeout=5.0)  # by the manager; it looks there
            await asyncio.sleep(0.3)
            with SyncClient(all_.manager.path, operator=True) as operator:
                operator.drain("0")
                assert await call == "done"
                all_.manager.until(lambda status: not status["loans"]["now"], "the loan ends")
                operator.drain("0", False)

    with together(tmp_path) as all_, all_.worker():
        run(go(all_))


def test_new_calls_do_not_wait_for_a_loan_that_a_long_call_keeps(tmp_path: Path) -> None:
    async def go(all_: Together) -> None:
        async with Client(all_.manager.path) as client, Client(all_.manager.path) as other:
            await warmed(client, "about", None)
            long = client.start("about", 4.0)
            await asyncio.sleep(0.2)
            assert await other.execute("echo", 1) == 1  # ends the other child's loan
            for _ in range(MANY):
                assert (await client.execute("about", None))["cancelled"] is False
            assert not long.done()
            long.cancel(hard=True)

    with together(tmp_path) as all_, all_.worker("0"), all_.worker("1"):
        run(go(all_))


def test_calls_of_a_killed_child_are_counted_all_the_same(tmp_path: Path) -> None:
    async def go(all_: Together) -> None:
        async with Client(all_.manager.path) as client:
            await warmed(client, "about", None)
            pid = (await client.execute("about", None))["pid"]
            await warmed(client, "wait", 0.0)
            hung = client.start("wait", 20.0, timeout=30.0)
            await asyncio.sleep(0.2)
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(WorkerCrashed):
                await hung
            assert (await client.execute("about", timeout=10.0))["pid"] != pid

    with together(tmp_path) as all_, all_.worker():
        run(go(all_))
        outcomes = {name: n for name, n in all_.manager.status()["outcomes"].items() if n}
        assert outcomes == {"ok": 2 * MANY + 2, "crashed": 1}
