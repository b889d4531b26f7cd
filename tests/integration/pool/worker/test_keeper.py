"""A keeper with real children and a scripted manager."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import time
from pathlib import Path

import pytest
from msgspec import msgpack
from tests.integration.pool.child.born import COMMANDS, order, value
from tests.integration.pool.worker.kept import (
    alive,
    answered,
    config_of,
    expect,
    heard,
    keeping,
    managing,
    until,
)

from cordata import events
from cordata.core.pool.message import Goaway, Hello, Result, Welcome
from cordata.core.pool.order import Drain, Kill, Recycle, Retire


async def test_keeper_starts_its_child_and_says_so(tmp_path: Path) -> None:
    async with managing(tmp_path) as manager, keeping(tmp_path / "pool.sock") as keeper:
        worker = await manager.worker()
        child, hello = await manager.child()
        started = await heard(worker, "started")
        assert (started.pid, started.start, started.why) == (hello.pid, hello.start, "")
        assert (await heard(worker, "warm")).pid == hello.pid
        assert keeper.up
        assert value(await answered(child, order("echo", 5))) == 5
        worker.send(Goaway(why="stop"))
        worker.close()
        worker = await manager.worker()
        assert (await heard(worker, "started")).pid == hello.pid
        assert (await heard(worker, "warm")).n == 101


async def test_killed_child_is_reported_and_followed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with managing(tmp_path) as manager, keeping(tmp_path / "pool.sock"):
        worker = await manager.worker()
        child, hello = await manager.child()
        await heard(worker, "started"), await heard(worker, "warm")
        child.send(order("hang", n=42))
        await until(lambda: "hanging" in caplog.text)
        began = time.monotonic()
        os.kill(hello.pid, signal.SIGKILL)
        end = await heard(worker, "exited")
        assert time.monotonic() - began < 0.5
        assert (end.pid, end.sig, end.code, end.why) == (hello.pid, 9, None, "")
        assert (end.n, end.run, end.lines) == (42, True, ["hanging"])
        assert (await heard(worker, "started")).pid != hello.pid
        crash = [r for r in caplog.records if "SIGKILL" in r.getMessage()]
        assert crash[0].__dict__["MESSAGE_ID"] == events.POOL_CHILD_CRASHED
        assert crash[0].__dict__["CALL_ID"] == "0000000000000000-42"
        _, second = await manager.child()
        assert second.pid != hello.pid


async def test_death_before_the_welcome_is_told_after_it(tmp_path: Path) -> None:
    """A manager that started again may have the child already, by the child's own hello."""
    async with managing(tmp_path) as manager, keeping(tmp_path / "pool.sock") as keeper:
        silent = []
        for _ in "ab":
            peer = await asyncio.to_thread(manager.listening.accept)
            silent.append((peer, await asyncio.to_thread(peer.expect, Hello)))
        worker = next(peer for peer, hello in silent if hello.role == "worker")
        child = next(hello for _, hello in silent if hello.role == "child")
        await until(lambda: keeper.up)
        os.kill(child.pid, signal.SIGKILL)
        await until(lambda: not alive(child.pid))
        await asyncio.sleep(0.1)
        worker.send(Welcome(epoch="1" * 16))
        end = await heard(worker, "exited")
        assert (end.pid, end.sig, end.why) == (child.pid, 9, "")
        assert (await heard(worker, "started")).pid != child.pid
        for peer, _ in silent:
            peer.close()


async def test_exit_of_a_command_is_a_death(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with managing(tmp_path) as manager, keeping(tmp_path / "pool.sock"):
        worker = await manager.worker()
        child, _ = await manager.child()
        await heard(worker, "started"), await heard(worker, "warm")
        child.send(order("die", "exit"))
        end = await heard(worker, "exited")
        assert (end.code, end.sig, end.why, end.lines) == (3, None, "", ["last words"])
        # What a command writes may name somebody: it goes to the caller, and into no mail.
        [error] = [one for one in caplog.records if one.levelno >= logging.ERROR]
        assert error.getMessage().endswith("ended in a call with status 3")


async def test_hang_is_killed_at_deadline_and_grace_without_a_manager(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with keeping(tmp_path / "pool.sock") as keeper:
        async with managing(tmp_path) as manager:
            await manager.worker()
            child, hello = await manager.child()
            began = time.monotonic()
            child.send(order("hang", d=0.4))
            await asyncio.sleep(0.1)
        await until(lambda: not alive(hello.pid))
        assert 0.7 <= time.monotonic() - began < 1.2
        await until(lambda: keeper.up)
        async with managing(tmp_path) as manager:
            worker = await manager.worker()
            _, second = await manager.child()
            assert second.pid != hello.pid
            end = await heard(worker, "exited")
            assert (end.pid, end.why, end.n, end.run) == (hello.pid, "deadline", 101, True)
            assert (await heard(worker, "started")).pid == second.pid
    assert caplog.text.count("has to go") == 1


async def test_manager_has_a_call_killed_but_no_other(tmp_path: Path) -> None:
    async with managing(tmp_path) as manager, keeping(tmp_path / "pool.sock"):
        worker = await manager.worker()
        child, hello = await manager.child()
        await heard(worker, "started"), await heard(worker, "warm")
        child.send(order("hang", n=7))
        await asyncio.sleep(0.2)
        for pid, start, serial in ((1, 0, 7), (hello.pid, 0, 7), (hello.pid, hello.start, 6)):
            worker.send(Kill(pid=pid, start=start, n=serial, why="cancelled"))
        assert await asyncio.to_thread(worker.silent, 0.2)
        worker.send(Kill(pid=hello.pid, start=hello.start, n=7, why="cancelled"))
        end = await heard(worker, "exited")
        assert (end.sig, end.why, end.n, end.run) == (9, "cancelled", 7, True)
        await heard(worker, "started")


async def test_what_a_command_started_dies_with_its_child(tmp_path: Path) -> None:
    async with managing(tmp_path) as manager, keeping(tmp_path / "pool.sock"):
        child, hello = await manager.child()
        grandchild = value(await answered(child, order("start_another")))
        assert alive(grandchild)
        os.kill(hello.pid, signal.SIGKILL)
        await until(lambda: not alive(grandchild))


async def test_recycling_leaves_no_gap(tmp_path: Path) -> None:
    """The manager's part is played as its dispatcher plays it: the spare is ready, then retire."""
    async with (
        managing(tmp_path) as manager,
        keeping(tmp_path / "pool.sock", max_calls=3, spec={"max_calls": 3}) as keeper,
    ):
        worker = await manager.worker()
        child, hello = await manager.child()
        await heard(worker, "started"), await heard(worker, "warm")
        for already in (0, 1, 1):
            for _ in range(3 - already):
                assert value(await answered(child, order("about")))["pid"] == hello.pid
            assert (await heard(worker, "due")).why == "max_calls: 3 calls"
            started = await heard(worker, "started")
            assert started.why == "spare"
            # While the spare warms up, the child serves on.
            assert value(await answered(child, order("about")))["pid"] == hello.pid
            spare, next_hello = await manager.child()
            assert next_hello.spare and keeper.up
            await heard(worker, "warm")
            child.send(order("wait", 0.2))
            await asyncio.sleep(0.1)
            worker.send(Retire(pid=hello.pid, start=hello.start))
            assert value(await answered(spare, order("about")))["pid"] == next_hello.pid
            assert msgpack.decode((await expect(child, Result)).payload) == "done"
            end = await heard(worker, "exited")
            assert (end.pid, end.code, end.why) == (hello.pid, 0, "stop")
            child, hello = spare, next_hello


async def test_recycling_goes_on_when_the_manager_says_nothing_of_it(tmp_path: Path) -> None:
    async with (
        managing(tmp_path) as manager,
        keeping(tmp_path / "pool.sock", health_s=30.0, health_timeout_s=0.5),
    ):
        worker = await manager.worker()
        child, hello = await manager.child()
        await heard(worker, "started"), await heard(worker, "warm")
        child.send(order("wait", 1.0))
        worker.send(Recycle())
        assert (await heard(worker, "due")).why == "asked for"
        assert (await heard(worker, "started")).why == "spare"
        spare, _ = await manager.child()
        warm = await heard(worker, "warm")
        assert warm.rss > 1_000_000
        # No retire comes. The former ends what it has in hand, and nothing of it is lost.
        assert msgpack.decode((await expect(child, Result)).payload) == "done"
        end = await heard(worker, "exited")
        assert (end.pid, end.code, end.why) == (hello.pid, 0, "stop")
        assert value(await answered(spare, order("about")))["pid"] == warm.pid


async def test_recycling_goes_on_without_a_manager(tmp_path: Path) -> None:
    async with keeping(tmp_path / "pool.sock", max_age_s=1.0) as keeper:
        await until(lambda: keeper.up)
        first = keeper.child
        assert first is not None
        await until(lambda: keeper.child is not first and keeper.up and not alive(first.pid))
        async with managing(tmp_path) as manager:
            _, hello = await manager.child()
            assert hello.pid != first.pid


async def test_recycle_is_asked_for(tmp_path: Path) -> None:
    async with managing(tmp_path) as manager, keeping(tmp_path / "pool.sock"):
        worker = await manager.worker()
        _, hello = await manager.child()
        await heard(worker, "started"), await heard(worker, "warm")
        worker.send(Recycle())
        assert (await heard(worker, "due")).why == "asked for"
        spare = await heard(worker, "started")
        await heard(worker, "warm")
        # The child dies before the spare was taken over: the spare is the child.
        os.kill(hello.pid, signal.SIGKILL)
        assert (await heard(worker, "exited")).pid == hello.pid
        _, next_hello = await manager.child()
        assert next_hello.pid == spare.pid
        assert await asyncio.to_thread(worker.silent, 0.2)


async def test_reload_changes_the_limits(tmp_path: Path) -> None:
    async with managing(tmp_path) as manager, keeping(tmp_path / "pool.sock") as keeper:
        worker = await manager.worker()
        child, _ = await manager.child()
        await heard(worker, "started"), await heard(worker, "warm")
        await answered(child, order("echo"))
        keeper.reload(config_of(max_calls=1), log_level="DEBUG")
        assert (await heard(worker, "due")).why == "max_calls: 1 calls"


async def test_fat_child_is_due(tmp_path: Path) -> None:
    async with (
        managing(tmp_path) as manager,
        keeping(tmp_path / "pool.sock", max_rss_bytes=60_000_000),
    ):
        worker = await manager.worker()
        child, _ = await manager.child()
        await heard(worker, "started"), await heard(worker, "warm")
        assert await asyncio.to_thread(worker.silent, 1.2)
        await answered(child, order("grow", 80_000_000))
        assert (await heard(worker, "due")).why.startswith("max_rss_bytes: ")


async def test_child_that_does_not_answer_is_replaced(tmp_path: Path) -> None:
    async with (
        managing(tmp_path) as manager,
        keeping(tmp_path / "pool.sock", health_s=0.2, health_timeout_s=0.2),
    ):
        worker = await manager.worker()
        _, hello = await manager.child()
        await heard(worker, "started"), await heard(worker, "warm")
        assert await asyncio.to_thread(worker.silent, 1.5)  # several pings, all answered
        os.kill(hello.pid, signal.SIGSTOP)
        assert (await heard(worker, "unhealthy")).pid == hello.pid
        end = await heard(worker, "exited")
        assert (end.sig, end.why, end.run) == (9, "unhealthy", False)
        await heard(worker, "started")


async def test_child_that_cannot_warm_up_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spec = {"inits": (f"{COMMANDS}:broken_init",)}
    async with managing(tmp_path) as manager, keeping(tmp_path / "pool.sock", spec=spec) as keeper:
        worker = await manager.worker()
        for _ in range(3):
            await heard(worker, "started")
            end = await heard(worker, "exited")
            assert (end.code, end.why, end.n) == (1, "init", 0)
            assert re.fullmatch(r"RuntimeError at commands\.py:\d+", end.m)
        assert not keeper.up
    assert "could not warm up: RuntimeError" in caplog.text
    assert "in broken_init" in caplog.text and "no fonts" not in caplog.text


async def test_child_that_takes_too_long_to_warm_up_is_killed(tmp_path: Path) -> None:
    spec = {"inits": (f"{COMMANDS}:slow_init",)}
    async with (
        managing(tmp_path) as manager,
        keeping(tmp_path / "pool.sock", spec=spec, init_timeout_s=0.5),
    ):
        worker = await manager.worker()
        await heard(worker, "started")
        end = await heard(worker, "exited")
        assert (end.sig, end.why) == (9, "init")
        assert end.m == "it was not warm within init_timeout_s"


@pytest.mark.parametrize(
    ("init", "told"),
    [
        ("lengthy_init", "ImportError: no fonts " + 300 * "x"),
        ("deadly_init", "it ended by SIGKILL before it was warm"),
    ],
)
async def test_worker_says_in_one_line_of_300_characters_why_its_child_was_never_warm(
    tmp_path: Path, init: str, told: str
) -> None:
    spec = {"inits": (f"{COMMANDS}:{init}",)}
    async with managing(tmp_path) as manager, keeping(tmp_path / "pool.sock", spec=spec):
        worker = await manager.worker()
        await heard(worker, "started")
        assert (await heard(worker, "exited")).m == told[:300]


async def test_worker_has_nothing_to_say_of_the_start_of_a_child_that_was_warm(
    tmp_path: Path,
) -> None:
    async with managing(tmp_path) as manager, keeping(tmp_path / "pool.sock"):
        worker = await manager.worker()
        _, hello = await manager.child()
        await heard(worker, "started"), await heard(worker, "warm")
        os.kill(hello.pid, signal.SIGKILL)
        assert (await heard(worker, "exited")).m == ""


async def test_four_children_warm_up_at_the_same_time(tmp_path: Path) -> None:
    spec = {"inits": (f"{COMMANDS}:slow_init",)}
    began = time.monotonic()
    async with (
        keeping(tmp_path / "a", spec=spec) as a,
        keeping(tmp_path / "b", spec=spec) as b,
        keeping(tmp_path / "c", spec=spec) as c,
        keeping(tmp_path / "d", spec=spec) as d,
    ):
        for keeper in (a, b, c, d):
            await asyncio.wait_for(keeper.warmed.wait(), 10.0)
        took_s = time.monotonic() - began
        print(f"four children with an init of 2 s were warm after {took_s:.2f} s")
        assert 2.0 <= took_s < 3.5


async def test_stop_waits_for_the_call_in_hand(tmp_path: Path) -> None:
    async with managing(tmp_path) as manager:
        async with keeping(tmp_path / "pool.sock"):
            worker = await manager.worker()
            child, hello = await manager.child()
            await heard(worker, "started"), await heard(worker, "warm")
            child.send(order("wait", 0.5))
            await asyncio.sleep(0.1)
        assert (await expect(worker, Drain)).on
        assert (await heard(worker, "retired")).pid == hello.pid
        end = await heard(worker, "exited")
        assert (end.pid, end.code, end.why, end.run) == (hello.pid, 0, "stop", False)
        assert not alive(hello.pid)


async def test_cancelled_keeper_leaves_nobody(tmp_path: Path) -> None:
    pid = 0
    with pytest.raises(ExceptionGroup, match="unhandled"):
        async with keeping(tmp_path / "pool.sock") as keeper:
            await until(lambda: keeper.up)
            assert keeper.child is not None
            pid = keeper.child.pid
            raise RuntimeError("the worker fails")
    assert pid and not alive(pid)


async def test_output_goes_to_the_journal_with_its_call(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with managing(tmp_path) as manager, keeping(tmp_path / "pool.sock"):
        await manager.worker()
        child, hello = await manager.child()
        await answered(child, order("speak", "a", n=8, request_id="r-5"))
        await until(lambda: "unfinished" in caplog.text)
        lines = [r for r in caplog.records if r.name == "cordata.pool.child"]
        assert [(r.levelname, r.getMessage()) for r in lines] == [
            ("INFO", "printed a"),
            ("INFO", "to stderr"),
            ("WARNING", "shop.pdf: logged"),
            ("WARNING", "twice"),
            ("INFO", "unfinished"),
        ]
        told = lines[0].__dict__
        assert (told["WORKER"], told["CHILD_PID"], told["REQUEST_ID"]) == ("0", hello.pid, "r-5")
        assert told["CALL_ID"] == "0000000000000000-8"
        assert told["MESSAGE_ID"] == events.POOL_CHILD_OUTPUT


async def test_worker_that_paused_does_not_blame_its_child(tmp_path: Path) -> None:
    async with keeping(tmp_path / "pool.sock", health_s=5.0, health_timeout_s=1.0) as keeper:
        await until(lambda: keeper.up)
        child = keeper.child
        assert child is not None
        keeper.run_once(time.monotonic() + 5.1)  # it is asked
        time.sleep(0.3)  # the loop stands still, and the answer lies there
        keeper.run_once(time.monotonic() + 7.0)
        await asyncio.sleep(0.2)
        assert keeper.child is child and alive(child.pid)
