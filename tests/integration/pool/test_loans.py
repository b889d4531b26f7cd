"""Children on loan: real processes, and a client that is alone until it is not."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from tests.integration.pool.lending import MANY, heard_of, lent, returned, run, warmed
from tests.integration.pool.test_together import Together, call, together
from tests.integration.server.running import wait_gone

from cordata.errors import (
    CallCancelled,
    CommandFailed,
    CommandUnknown,
    DeadlineExceeded,
    SessionNotFound,
    SessionQuotaExceeded,
)
from cordata.pool import Client, SyncClient


def test_client_that_is_alone_calls_children_itself(tmp_path: Path) -> None:
    async def go(all_: Together) -> None:
        async with Client(all_.manager.path) as client:
            numbers = list(range(500))
            for _ in range(10):  # a child that is kept waiting by the machine is recalled
                await lent(all_, client, 2)
                made = all_.manager.status()["loans"]["made"]
                calls = [client.execute("echo", n) for n in numbers]
                assert await asyncio.gather(*calls) == numbers
                loans = all_.manager.status()["loans"]
                if (loans["now"], loans["made"]) == (2, made):
                    break
            assert (loans["now"], loans["made"]) == (2, made)
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
        # However they went, it is known how long they ran.
        assert sum(status["run_ms"].values()) >= 2 * MANY + 500


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


@pytest.mark.parametrize(("sessions", "calls", "straight"), [(50, 2, 0), (1, 100, 90)])
def test_session_is_lent_when_it_is_worth_it(
    tmp_path: Path, sessions: int, calls: int, straight: int
) -> None:
    async def go(all_: Together) -> None:
        async def over_loans(count: int) -> int:
            """Of so many calls in all, each of which is counted within a second."""

            def counted(status: dict[str, Any]) -> Any:
                return status["outcomes"].get("ok") == count and [status["loans"]["calls"]]

            found = await asyncio.to_thread(all_.manager.until, counted, "all are counted")
            return int(found[0])

        async with Client(all_.manager.path) as client:
            count = await lent(all_, client, 1)
            before = await over_loans(count)
            for _ in range(sessions):
                session = (await client.sessions.create()).id
                for number in range(calls):
                    assert await client.execute("echo", number, session=session) == number
            found = await over_loans(count + sessions * calls) - before
            assert straight <= found <= 100 * bool(straight)

    with together(tmp_path) as all_, all_.worker():
        run(go(all_))


def test_session_over_a_loan_is_never_older_than_what_was_answered(tmp_path: Path) -> None:
    """Twenty sessions, one operation of each at a time: by loans, by the manager, by another."""

    async def go(all_: Together) -> None:
        async with Client(all_.manager.path) as client, Client(all_.manager.path) as other:
            first = (await client.sessions.create()).id
            await warmed(client, "remember", {}, session=first)

            async def lane(seed: int) -> None:
                random_ = random.Random(seed)
                id = (await client.sessions.create()).id
                own = others = -1
                for _ in range(250):
                    chance = random_.random()
                    if chance < 0.1:
                        others += 1
                        await other.sessions.update(id, set={"others": others})
                        continue
                    order = {"set": {"own": own + 1}} if chance < 0.4 else {}
                    # One with a priority goes by the manager.
                    call = client.start("remember", order, session=id, priority=int(chance > 0.95))
                    data = (await call)["data"]
                    assert (data.get("own", -1), data.get("others", -1)) == (own, others)
                    own += bool(order)

            await asyncio.gather(*map(lane, range(20)))

    with together(tmp_path) as all_, all_.worker("0"), all_.worker("1"), all_.worker("2"):
        run(go(all_))
        assert returned(all_)["calls"] >= 1000


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


@pytest.mark.parametrize("timeout_s", [0.3, 1.3])
def test_deadline_passes_in_a_borrowed_call(tmp_path: Path, timeout_s: float) -> None:
    """A near one has an alarm, one that is further away is looked at now and then."""

    async def go(all_: Together) -> None:
        async with Client(all_.manager.path) as client:
            await lent(all_, client, 1)
            await warmed(client, "about", None)
            pid = (await client.execute("about", None))["pid"]
            with pytest.raises(DeadlineExceeded) as caught:
                await client.execute("about", 20.0, timeout=timeout_s)
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


def test_long_call_of_a_loan_is_seen_by_its_operator(tmp_path: Path) -> None:
    async def go(all_: Together) -> None:
        def shown(status: dict[str, Any]) -> Any:
            (worker,) = status["workers"]
            (child,) = worker["children"]
            return "call" in child and (child, status["pools"]["default"])

        def over(status: dict[str, Any]) -> bool:
            return not shown(status)

        async with Client(all_.manager.path) as client:
            await warmed(client, "about", None)
            await warmed(client, "wait", 0.0)
            pid = (await client.execute("about", None))["pid"]
            long = client.start("wait", 20.0, timeout=30.0)
            child, pool = await asyncio.to_thread(all_.manager.until, shown, "it is seen")
            assert (child["pid"], child["state"], child["lent"]) == (pid, "busy", True)
            assert (child["call"]["command"], child["call"]["stage"]) == ("wait", "lent")
            assert 0 < child["call"]["age_s"] < child["call"]["deadline_in_s"] < 30
            assert (pool["ready"], pool["busy"]) == (0, 1)
            long.cancel()
            await asyncio.to_thread(all_.manager.until, over, "it is over")

    with together(tmp_path) as all_, all_.worker():
        run(go(all_))


def test_calls_of_a_loan_are_counted_while_their_client_idles(tmp_path: Path) -> None:
    async def go(all_: Together) -> None:
        def counted(status: dict[str, Any]) -> bool:
            return bool(status["outcomes"].get("ok") == MANY + 500)

        async with Client(all_.manager.path) as client:
            await warmed(client)
            await asyncio.gather(*(client.execute("echo", n) for n in range(500)))
            await asyncio.to_thread(all_.manager.until, counted, "all are counted")
            assert all_.manager.status()["loans"]["now"] == 1

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
