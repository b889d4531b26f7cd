"""Children on loan: real processes, and a client that is alone until it is not."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.integration.pool.managing import ENVIRONMENT
from tests.integration.pool.test_together import Together, call, together
from tests.integration.server.managed import Managed
from tests.integration.server.running import wait_gone
from tests.servers.process import wait_until
from tests.servers.reaper import watched

from cordata.errors import (
    CallCancelled,
    CommandFailed,
    CommandUnknown,
    DeadlineExceeded,
    PoolRestarted,
    SessionNotFound,
    SessionQuotaExceeded,
    WorkerCrashed,
)
from cordata.pool import Client, SyncClient

#: More than it takes to be lent children.
MANY = 200


async def warmed(
    client: Client, command: str = "echo", payload: Any = 1, *, session: str = ""
) -> None:
    """So many short calls, one after the other, that the client has children on loan."""
    for _ in range(MANY):
        await client.execute(command, payload, session=session)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60.0))


def heard_of(file: Path) -> None:
    wait_until(file.exists, timeout_s=10.0, what="the command to hear that it was cancelled")


def returned(all_: Together) -> dict[str, int]:
    """What the manager says of loans after somebody else has called."""
    with SyncClient(all_.manager.path) as other:
        other.execute("echo", 1)
    found: dict[str, Any] = all_.manager.until(
        lambda status: not status["loans"]["now"] and status, "the loans end"
    )
    return dict(found["loans"])


def test_client_that_is_alone_calls_children_itself(tmp_path: Path) -> None:
    async def go(all_: Together) -> None:
        async with Client(all_.manager.path) as client:
            await warmed(client)
            numbers = list(range(500))
            assert await asyncio.gather(*(client.execute("echo", n) for n in numbers)) == numbers
            told = all_.manager.status()
            assert told["loans"]["now"] == 2
            with pytest.raises(CommandUnknown):
                await client.execute("nothing")

    with together(tmp_path) as all_, all_.worker("0"), all_.worker("1"):
        with all_.manager.client() as client:
            for number in range(MANY):  # one that does not know of loans gets none
                assert call(client, "echo", number) == number
        assert all_.manager.status()["loans"]["made"] == 0
        run(go(all_))
        told = returned(all_)
        assert told["calls"] >= 500, told
        status = all_.manager.status()
        assert status["calls"] >= 2 * MANY + 500
        assert status["outcomes"]["ok"] >= 2 * MANY + 500


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


def test_session_over_a_loan_is_what_everybody_sees(tmp_path: Path) -> None:
    async def go(all_: Together) -> None:
        async with Client(all_.manager.path) as client, Client(all_.manager.path) as other:
            session = (await client.sessions.create(data={"n": -1})).id
            await warmed(client, "remember", {}, session=session)
            for number in range(100):
                order = {"set": {"n": number}, "count": {"seen": 1}, "gset": {"g": number}}
                before = await client.execute("remember", order, session=session)
                assert before["data"]["n"] == number - 1
                assert before["counters"].get("seen", 0) == number
                assert before["globals"].get("g", -1) == number - 1
            kept = await other.sessions.get(session)
            assert (kept.data["n"], kept.counters["seen"]) == (99, 100)
            # What another one changes is there with the next call, without a call of its own.
            for number in range(100):
                await other.sessions.update(session, set={"m": number})
                await other.globals.set(h=number)
                before = await client.execute("remember", {}, session=session)
                assert (before["data"]["m"], before["globals"]["h"]) == (number, number)
            with pytest.raises(CommandFailed, match="after all"):
                await client.execute("remember", {"set": {"n": 0}, "fail": True}, session=session)
            assert (await client.execute("remember", {}, session=session))["data"]["n"] == 99
            await other.sessions.delete(session)
            with pytest.raises(SessionNotFound):
                await client.execute("remember", {}, session=session)

    with together(tmp_path) as all_, all_.worker("0"), all_.worker("1"):
        run(go(all_))
        assert returned(all_)["calls"] >= 100


def test_session_that_would_grow_too_large_over_a_loan_stays_as_it_was(tmp_path: Path) -> None:
    async def go(all_: Together) -> None:
        async with Client(all_.manager.path) as client:
            session = (await client.sessions.create(data={"n": 1})).id
            await warmed(client, "remember", {}, session=session)
            for _ in range(3):
                assert (await client.execute("remember", {}, session=session))["data"] == {"n": 1}
            with pytest.raises(SessionQuotaExceeded):
                order = {"set": {"n": 2, "large": "x" * 3000}, "gset": {"g": 1}}
                await client.execute("remember", order, session=session)
            for _ in range(3):
                before = await client.execute("remember", {}, session=session)
                assert (before["data"], before["globals"]) == ({"n": 1}, {})
            # The manager's own call of the session, whose child keeps what the manager refuses.
            with pytest.raises(SessionQuotaExceeded):
                order = {"set": {"n": 3, "large": "x" * 3000}}
                await client.execute("remember", order, session=session, priority=1)
            for _ in range(3):
                before = await client.execute("remember", {}, session=session)
                assert before["data"] == {"n": 1}

    with together(tmp_path, "max_session_bytes = 2000\n") as all_, all_.worker():
        run(go(all_))
        assert returned(all_)["calls"] >= 3


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


def test_calls_behind_a_long_one_run_elsewhere(tmp_path: Path) -> None:
    file = tmp_path / "ran"

    async def go(all_: Together) -> None:
        async with Client(all_.manager.path) as client:
            await warmed(client, "note", ["/dev/null", 0, 0.0])
            long = client.start("note", [str(file), 0, 3.0])
            short = [client.start("note", [str(file), n, 0.0]) for n in range(1, 200)]
            assert [await one for one in short] == list(range(1, 200))
            # They neither waited for it nor went to its child again.
            more = [await client.execute("note", [str(file), n, 0.0]) for n in range(200, 300)]
            assert more == list(range(200, 300))
            assert not long.done()
            assert await long == 0
            assert sorted(map(int, file.read_text().split())) == list(range(300))

    with together(tmp_path) as all_, all_.worker("0"), all_.worker("1"):
        run(go(all_))
        assert returned(all_)["calls"] >= 200


def test_another_client_does_not_wait_for_a_long_borrowed_call(tmp_path: Path) -> None:
    async def go(all_: Together) -> None:
        async with Client(all_.manager.path) as client, Client(all_.manager.path) as other:
            await warmed(client, "about", None)
            long = [client.start("about", 3.0)]
            await asyncio.sleep(0.1)
            for number in range(20):
                assert await other.execute("echo", number) == number
            assert not long[0].done()
            await long[0]

    with together(tmp_path) as all_, all_.worker("0"), all_.worker("1"):
        run(go(all_))


def test_deadline_passes_in_a_borrowed_call(tmp_path: Path) -> None:
    async def go(all_: Together) -> None:
        async with Client(all_.manager.path) as client:
            await warmed(client, "about", None)
            pid = (await client.execute("about", None))["pid"]
            with pytest.raises(DeadlineExceeded) as caught:
                await client.execute("about", 20.0, timeout=0.3)
            assert caught.value.ran
            await asyncio.to_thread(wait_gone, [pid])  # it is deaf: its worker kills it
            assert (await client.execute("about", None))["pid"] != pid

    with together(tmp_path) as all_, all_.worker():
        run(go(all_))


def test_borrowed_call_is_cancelled(tmp_path: Path) -> None:
    file = tmp_path / "ran"

    async def go(all_: Together) -> None:
        async with Client(all_.manager.path) as client:
            await warmed(client, "about", None)
            await warmed(client, "wait", 0.0)
            await warmed(client, "note", ["/dev/null", 0, 0.0])
            pid = (await client.execute("about", None))["pid"]
            soft = client.start("wait", 20.0)
            never = client.start("note", [str(file), 1, 0.0])
            await asyncio.sleep(0.002)
            never.cancel()
            await asyncio.sleep(0.2)
            soft.cancel()
            for one in (soft, never):
                with pytest.raises(CallCancelled):
                    await one
            assert (await client.execute("about", None))["pid"] == pid
            assert not file.exists()
            hard = client.start("about", 20.0)
            await asyncio.sleep(0.2)
            hard.cancel(hard=True)
            with pytest.raises(CallCancelled):
                await hard
            await asyncio.to_thread(wait_gone, [pid])
            assert (await client.execute("about", None))["pid"] != pid

    with together(tmp_path) as all_, all_.worker():
        run(go(all_))


def test_async_command_in_a_borrowed_child_hears_that_it_was_cancelled(tmp_path: Path) -> None:
    file = tmp_path / "cancelled"

    async def go(all_: Together) -> None:
        async with Client(all_.manager.path) as client:
            await warmed(client, "note_cancel", [str(file), 0.0])
            nap = client.start("note_cancel", [str(file), 20.0])
            await asyncio.sleep(0.2)
            nap.cancel()
            with pytest.raises(CallCancelled):
                await nap
            # Nobody says anything to the child meanwhile, the manager neither.
            await asyncio.to_thread(heard_of, file)

    with together(tmp_path) as all_, all_.worker():
        run(go(all_))
        assert returned(all_)["calls"] >= MANY // 2


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


def test_sync_client_beside_it_gets_its_own_answers(tmp_path: Path) -> None:
    """It knows nothing of loans, whatever was about to be lent as its call came."""

    def count(path: Path) -> list[int]:
        with SyncClient(path) as other:
            return [other.execute("echo", number) for number in range(300)]

    async def go(all_: Together) -> None:
        async with Client(all_.manager.path) as client:
            counting = asyncio.create_task(asyncio.to_thread(count, all_.manager.path))
            while not counting.done():
                await warmed(client)
            assert await counting == list(range(300))

    with together(tmp_path) as all_, all_.worker("0"), all_.worker("1"):
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


def test_call_that_was_given_up_while_the_manager_had_its_result_is_over(tmp_path: Path) -> None:
    async def go(all_: Together) -> None:
        async with Client(all_.manager.path) as client:
            session = (await client.sessions.create()).id
            await warmed(client, "remember", {}, session=session)
            for number in range(300):
                order = {"set": {"n": number}}
                call = client.start("remember", order, session=session)
                await asyncio.sleep(0.0001 * (number % 7))
                call.cancel()
                await asyncio.gather(call, return_exceptions=True)
                assert await client.execute("remember", {}, session=session)
            await warmed(client, "remember", {}, session=session)

    with together(tmp_path) as all_, all_.worker():
        run(go(all_))
        assert returned(all_)["calls"] >= MANY


def test_client_that_does_not_read_holds_up_no_other(tmp_path: Path) -> None:
    async def go(all_: Together) -> None:
        async with Client(all_.manager.path) as client:
            await warmed(client, "much", 10)
            calls = [client.start("much", 300_000) for _ in range(16)]
            await asyncio.sleep(0.02)
            # In this thread: nobody reads what comes meanwhile.
            with SyncClient(all_.manager.path) as other:
                for number in range(20):
                    assert other.execute("echo", number, timeout=10.0) == number
            assert {len(await call) for call in calls} == {300_000}

    with together(tmp_path) as all_, all_.worker():
        run(go(all_))
