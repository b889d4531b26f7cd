"""The clients and real children: what becomes of calls when something is busy, dies or is gone."""

from __future__ import annotations

import asyncio
import difflib
import gc
import os
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest
from tests.integration.pool.workers import Workers, workers
from tests.integration.server.running import wait_gone
from tests.waiting import until

from cordata.config.pool import PoolConfig
from cordata.errors import (
    CallCancelled,
    ChildCrashed,
    CommandFailed,
    CommandRefused,
    CommandUnknown,
    DeadlineExceeded,
    FrameTooLarge,
    PoolClosed,
    PoolError,
    PoolSaturated,
    PoolUnavailable,
    QueueTimeout,
    SessionNotFound,
)
from cordata.pool import Call, Client, SyncClient
from cordata.pool.shared.protocol import CommandOptions


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    """A pool of one process."""
    with workers(tmp_path_factory.mktemp("one")) as pool, pool.worker():
        yield pool


async def running(pool: Workers, *commands: str) -> None:
    await asyncio.to_thread(pool.until_running, *commands)


def ran(file: Path) -> list[int]:
    return [int(line) for line in file.read_text().split()] if file.exists() else []


async def test_submit_calls_with_arguments_and_map_gives_results_in_order(one: Workers) -> None:
    async with Client(one.path, timeout=60.0) as client:
        assert await client.submit("add", 1, by=2) == 3
        assert [value async for value in client.map("add", range(200))] == [*range(1, 201)]
        async with aclosing(client.map("add", iter(int, 1), window=4)) as values:
            assert await anext(values) == 1
        with pytest.raises(CommandFailed, match="positional"):
            await client.submit("add", 1, 2, 3)


async def test_map_raises_the_first_error_and_logs_none_when_several_calls_fail(
    one: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    async with Client(one.path, timeout=60.0) as client:

        async def items() -> AsyncIterator[str]:
            for _ in range(3):
                yield "no number"
            await client.execute("echo")  # behind them, so they have failed

        with pytest.raises(CommandFailed):
            await anext(client.map("add", items()))
    gc.collect()
    assert "never retrieved" not in caplog.text


def test_sync_submit_gives_a_future_and_map_the_results(one: Workers, tmp_path: Path) -> None:
    file = tmp_path / "ran"
    with SyncClient(one.path, timeout=60.0) as client:
        assert client.submit("add", 1, by=2).result(30.0) == 3
        assert list(client.map("add", range(100), window=8)) == [*range(1, 101)]
        wait = client.submit("wait", 20.0)
        one.until_running("wait")
        waiting = client.submit("note", [str(file), 1, 0.0])
        for future in (waiting, wait):
            assert future.cancel()
            with pytest.raises(CallCancelled):
                future.result(20.0)
        assert client.execute("echo", 1) == 1
    assert ran(file) == []


@pytest.mark.parametrize(("command", "hard"), [("wait", False), ("hang", True)])
def test_interrupted_sync_map_cancels_all_its_calls(one: Workers, command: str, hard: bool) -> None:
    submitted = threading.Event()

    def items() -> Iterator[float]:
        yield from (600.0, 600.0)
        submitted.set()

    def interrupt() -> None:
        assert submitted.wait(60.0)
        one.until_running(command)
        os.kill(os.getpid(), signal.SIGUSR1)

    def raise_interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, raise_interrupt)
    thread = threading.Thread(target=interrupt)
    try:
        with SyncClient(one.path, timeout=600.0, hard_cancel=hard) as client:
            thread.start()
            with pytest.raises(KeyboardInterrupt):
                next(client.map(command, items()))
            until(lambda: not one.running(), timeout_s=30.0)  # it hangs for 60 s
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)


def test_cancelled_future_kills_no_child_although_the_client_cancels_hard_when_interrupted(
    one: Workers, tmp_path: Path
) -> None:
    file = tmp_path / "ran"
    with SyncClient(one.path, timeout=60.0, hard_cancel=True) as client:
        before = client.execute("about")["pid"]
        future = client.submit("note", [str(file), 1, 1.0])  # 0.7 s longer than the grace
        until(file.exists)
        assert future.cancel()
        assert client.execute("about")["pid"] == before


async def test_exception_is_the_cause_where_its_class_is_imported(one: Workers) -> None:
    async with Client(one.path, timeout=60.0) as client:
        with pytest.raises(CommandRefused) as caught:
            await client.execute("fail", "fault")
        assert caught.value.__cause__ is None  # its arguments are no UTF-8
        with pytest.raises(CommandFailed) as failed:
            await client.execute("add", [])
        assert isinstance(failed.value.__cause__, TypeError)
        assert "in add" in failed.value.__cause__.__notes__[0]


async def test_large_payloads_and_results_travel_and_too_large_ones_fail_alone(
    one: Workers,
) -> None:
    async with Client(one.path, timeout=60.0) as client:
        blob = bytes(5_000_000)
        assert await client.execute("echo", blob) == blob
        with pytest.raises(FrameTooLarge):
            await client.execute("echo", bytes(17_000_000))
        with pytest.raises(FrameTooLarge):
            await client.execute("much", 17_000_000)
        assert await client.execute("echo", 1) == 1


async def test_deadline_ends_a_running_call_and_one_that_waits_never_begins(
    one: Workers, tmp_path: Path
) -> None:
    file = tmp_path / "ran"
    async with Client(one.path, timeout=60.0) as client:
        late = client.start("hang", timeout=3.0)
        await running(one, "hang")
        behind = [client.start("note", [str(file), n, 0.0], timeout=0.3) for n in range(4)]
        for call in behind:
            with pytest.raises(DeadlineExceeded, match="queue") as caught:
                await call
            assert not caught.value.ran
        with pytest.raises(DeadlineExceeded) as caught:
            await late
        assert caught.value.ran
        assert await client.execute("echo", 1) == 1  # by another child, after the kill
    assert ran(file) == []


async def test_queue_timeout_counts_only_until_the_call_begins(
    one: Workers, tmp_path: Path
) -> None:
    file = tmp_path / "ran"
    async with Client(one.path, timeout=60.0) as client:
        wait = client.start("wait", 4.0, queue_timeout=3.0)
        await running(one, "wait")
        with pytest.raises(QueueTimeout):
            await client.execute("note", [str(file), 1, 0.0], queue_timeout=0.1)
        assert await wait == "done"
        assert await client.execute("echo", 1) == 1
    assert ran(file) == []


async def test_call_that_may_not_wait_runs_in_a_free_child(one: Workers) -> None:
    async with Client(one.path, timeout=60.0) as client:
        assert await client.execute("echo", 1) == 1
        for number in range(100):
            assert await client.execute("echo", number, queue_timeout=0.0) == number
        wait = client.start("wait", 60.0)
        await running(one, "wait")
        with pytest.raises(QueueTimeout):
            await client.execute("echo", queue_timeout=0.0)
        wait.cancel()


async def test_cancelled_call_never_begins_and_hard_cancel_kills_one_that_hangs(
    one: Workers, tmp_path: Path
) -> None:
    file = tmp_path / "ran"
    async with Client(one.path, timeout=60.0) as client:
        hang = client.start("hang")
        await running(one, "hang")
        waiting = [client.start("note", [str(file), n, 0.0]) for n in range(4)]
        for call in waiting:
            call.cancel()
        hang.cancel(hard=True)
        for call in (*waiting, hang):
            with pytest.raises(CallCancelled):
                await call
        assert await client.execute("echo", 1) == 1
    assert ran(file) == []


async def test_waiting_calls_begin_by_priority_then_in_order(one: Workers, tmp_path: Path) -> None:
    file = tmp_path / "ran"
    async with Client(one.path, timeout=60.0) as client:
        wait = client.start("wait", 20.0)
        await running(one, "wait")
        await asyncio.sleep(0.05)  # the child is at it for so long that it gets no second call
        calls = [
            client.start("note", [str(file), number, 0.0], priority=priority)
            for number, priority in enumerate((0, 3, 0, 9, 3))
        ]
        wait.cancel()
        await asyncio.gather(*calls)
    assert ran(file) == [3, 1, 4, 0, 2]


async def test_options_of_the_decorator_hold_for_a_client_that_has_only_the_path(
    one: Workers, tmp_path: Path
) -> None:
    """They come with the welcome of a child, for which the first call waits."""
    file = tmp_path / "ran"
    for connected in (False, True):
        async with Client(one.path, timeout=60.0) as client:
            if connected:
                await client.execute("echo")
            assert 500.0 < (await client.execute("about_long"))["remaining"] <= 600.0
            assert (await client.execute("about_long", timeout=50.0))["remaining"] <= 50.0
    with SyncClient(one.path, timeout=60.0) as sync:
        assert 500.0 < sync.execute("about_long")["remaining"] <= 600.0
    async with Client(one.path, timeout=60.0) as client:
        with pytest.raises(ChildCrashed, match="at attempt 2"):
            await client.execute("die_twice", str(file))
        assert len(ran(file)) == 2
        with pytest.raises(ChildCrashed):
            await client.execute("die_twice", str(file), idempotent=False)
        assert len(ran(file)) == 3


async def test_options_given_to_the_client_go_before_those_of_the_child(
    one: Workers, tmp_path: Path
) -> None:
    file = tmp_path / "ran"
    options = {"about_long": CommandOptions(timeout_s=50.0), "die_twice": CommandOptions()}
    async with Client(one.path, timeout=60.0, options=options) as client:
        assert (await client.execute("about_long"))["remaining"] <= 50.0
        with pytest.raises(ChildCrashed):
            await client.execute("die_twice", str(file))
    assert len(ran(file)) == 1


async def test_unknown_command_is_refused_with_the_nearest_name(one: Workers) -> None:
    async with Client(one.path, timeout=60.0) as client:
        with pytest.raises(CommandUnknown) as caught:
            await client.execute("ecko")
        assert caught.value.hint == "did you mean 'echo'?"


async def test_nearest_name_is_looked_for_once_for_all_waiting_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes milliseconds, in which nothing else happens."""
    asked, find = list[str](), difflib.get_close_matches

    def noted(word: str, known: list[str], n: int) -> list[str]:
        asked.append(word)
        return find(word, known, n)

    monkeypatch.setattr(difflib, "get_close_matches", noted)
    with workers(tmp_path) as pool:
        async with Client(pool.path, timeout=60.0) as client:
            early = [client.start("ecko") for _ in range(3)]
            with pool.worker():
                for call in early:
                    with pytest.raises(CommandUnknown) as caught:
                        await call
                    assert caught.value.hint == "did you mean 'echo'?"
    assert asked == ["ecko"]


async def test_call_behind_a_long_one_moves_to_a_child_that_becomes_free(tmp_path: Path) -> None:
    with workers(tmp_path) as pool, pool.worker("0"), pool.worker("1"):
        async with Client(pool.path, timeout=60.0) as client:
            calls = [client.start("wait", seconds) for seconds in (60.0, 0.3)]
            echoes = [client.start("echo", number) for number in range(6)]
            assert await asyncio.gather(*echoes) == [*range(6)]
            assert not calls[0].done()
            calls[0].cancel()


async def test_death_in_a_call_is_told_with_its_signal_and_last_words(tmp_path: Path) -> None:
    with workers(tmp_path) as pool, pool.worker():
        async with Client(pool.path, timeout=60.0) as client:
            dying, waiting = client.start("die", int(signal.SIGSEGV)), client.start("echo", 1)
            with pytest.raises(ChildCrashed) as caught:
                await dying
            assert caught.value.signal == signal.SIGSEGV
            assert caught.value.lines == ("last words",)
            assert caught.value.worker == "0" and caught.value.pid > 0
            assert await waiting == 1  # it had not begun
            with pytest.raises(ChildCrashed) as caught:
                await client.execute("die", "exit")
            assert caught.value.exit_code == 3


async def test_calls_wait_for_workers_and_are_unavailable_at_their_deadline(
    tmp_path: Path,
) -> None:
    limits = {"default": PoolConfig(max_waiting=2)}
    with workers(tmp_path) as pool:
        async with Client(pool.path, timeout=60.0, pools=limits) as client:
            with pytest.raises(PoolUnavailable, match="No such file"):
                await client.execute("echo", timeout=0.1)
            async with Client(pool.path, timeout=0.2) as hasty:
                with pytest.raises(PoolUnavailable):
                    await hasty.sessions.create()
            early = [client.start("echo", number) for number in range(2)]
            with pytest.raises(PoolSaturated):
                client.start("echo")
            with pool.worker():
                assert await asyncio.gather(*early) == [0, 1]


async def test_change_is_made_by_a_worker_that_lives_when_others_left_their_sockets(
    tmp_path: Path,
) -> None:
    """As workers leave them that are killed."""
    with workers(tmp_path) as pool, pool.worker("0"):
        for name in range(1, 9):  # one of them at least is listed before worker 0
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as left:
                left.bind(str(pool.path / "default" / f"{name}.control.sock"))
        async with Client(pool.path, timeout=60.0) as client:
            await client.sessions.create("guest")
            assert await client.sessions.count("guest", asked=1) == {"asked": 1}
            await client.globals.set(season="winter")


async def test_error_names_the_worker_that_does_not_answer(tmp_path: Path) -> None:
    with workers(tmp_path) as pool, pool.worker("0"), pool.worker("1") as silent:
        os.kill(silent.process.pid, signal.SIGSTOP)
        try:
            async with Client(pool.path, timeout=3.0) as client:
                with pytest.raises(DeadlineExceeded, match="worker 1 did not answer"):
                    await client.drain("1")
        finally:
            os.kill(silent.process.pid, signal.SIGCONT)


async def test_sessions_are_used_while_one_of_the_workers_is_silent(tmp_path: Path) -> None:
    with workers(tmp_path) as pool, pool.worker("0") as zero, pool.worker("1") as one:
        async with Client(pool.path, timeout=20.0) as client:
            await client.sessions.create("guest")
            for asked, silent in enumerate((zero, one), 1):  # either is asked first
                os.kill(silent.process.pid, signal.SIGSTOP)
                try:
                    assert (await client.sessions.get("guest")).id == "guest"
                    assert await client.sessions.count("guest", asked=1) == {"asked": asked}
                finally:
                    os.kill(silent.process.pid, signal.SIGCONT)


async def test_late_answer_counts_while_the_other_worker_is_silent(tmp_path: Path) -> None:
    with workers(tmp_path) as pool, pool.worker("0") as zero, pool.worker("1") as one:
        async with Client(pool.path, timeout=20.0) as client:
            await client.sessions.create("guest")
            for late, silent in ((zero, one), (one, zero)):  # either is asked first
                os.kill(late.process.pid, signal.SIGSTOP)
                os.kill(silent.process.pid, signal.SIGSTOP)
                try:
                    getting = asyncio.ensure_future(client.sessions.get("guest"))
                    await asyncio.sleep(1.5)  # longer than one worker alone is waited for
                    os.kill(late.process.pid, signal.SIGCONT)
                    assert (await getting).id == "guest"
                finally:
                    for worker in (late, silent):
                        os.kill(worker.process.pid, signal.SIGCONT)


async def test_request_that_the_worker_refuses_fails_with_the_reason(one: Workers) -> None:
    async with Client(one.path, timeout=60.0) as client:
        for ttl_s in (-1.0, 2e9):
            with pytest.raises(ValueError, match="ttl_s"):
                await client.sessions.create("refused", ttl_s=ttl_s)
            with pytest.raises(ValueError, match="ttl_s"):
                await client.sessions.update("refused", ttl_s=ttl_s)
        with pytest.raises(ValueError):
            await client.list_sessions(limit=0)
        with pytest.raises(ValueError):
            await client.globals.set(**{str(number): None for number in range(70_000)})
        with pytest.raises(FrameTooLarge) as caught:
            await client.sessions.create("refused", data={"blob": bytes(17_000_000)})
        assert caught.value.length_bytes > 17_000_000
        with pytest.raises(SessionNotFound):
            await client.sessions.get("refused")


async def test_request_that_is_too_large_fails_no_other_one(one: Workers) -> None:
    async with Client(one.path, timeout=60.0) as client:
        await client.sessions.create("guest")
        blob = bytes(17_000_000)
        refused, *found = await asyncio.gather(
            client.sessions.create("large", data={"blob": blob}),
            *(client.sessions.get("guest") for _ in range(500)),
            return_exceptions=True,
        )
        assert isinstance(refused, FrameTooLarge)
        assert {getattr(one, "id", one) for one in found} == {"guest"}


async def test_killed_worker_takes_its_child_along_and_the_next_one_runs_what_waits(
    tmp_path: Path,
) -> None:
    with workers(tmp_path) as pool:
        async with Client(pool.path, timeout=60.0) as client:
            with pool.worker() as worker:
                pid = (await client.execute("about"))["pid"]
                hang = client.start("hang")
                await running(pool, "hang")
                waiting = client.start("echo", "waited")
                worker.process.kill()
                with pytest.raises(ChildCrashed) as caught:
                    await hang
                assert (caught.value.worker, caught.value.signal) == ("0", None)
                wait_gone([pid])
            with pool.worker():
                assert await waiting == "waited"


def test_stopped_and_killed_workers_lose_no_call(tmp_path: Path) -> None:
    """None is declared to run twice: what a worker had as it left runs at another one."""
    over, counts = threading.Event(), dict.fromkeys(range(4), 0)
    failures: list[str] = []

    def calling(number: int) -> None:
        with SyncClient(pool.path, timeout=60.0) as client:
            while not over.is_set():
                try:
                    assert client.execute("echo", number) == number
                    counts[number] += 1
                except PoolError as error:
                    failures.append(repr(error))

    with workers(tmp_path) as pool, pool.worker("1"):
        threads = [threading.Thread(target=calling, args=[number]) for number in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(3):
            with pool.worker("0") as worker:
                time.sleep(0.3)
                assert worker.stop()[0] == 0
        before = counts.copy()
        until(lambda: all(counts[number] > before[number] + 4 for number in counts))
        over.set()
        for thread in threads:
            thread.join(40.0)
    assert not failures, failures[:5]


async def test_recycled_child_is_replaced_and_drained_worker_gets_no_call(tmp_path: Path) -> None:
    with workers(tmp_path) as pool, pool.worker("0"), pool.worker("1"):
        async with Client(pool.path, timeout=60.0) as client:
            pids = {one["worker"]: child["pid"] for one, child in pool.children()}
            await client.drain("0")
            found = {(await client.execute("about"))["pid"] for _ in range(10)}
            assert found == {pids["1"]}
            await client.drain("1")
            with pytest.raises(DeadlineExceeded, match="drained: 0, 1"):
                await client.execute("about", timeout=0.3)
            waiting = client.start("about")
            await client.drain("0", on=False)
            assert (await waiting)["pid"] == pids["0"]
            await client.recycle("0")
            until(lambda: all(c["pid"] != pids["0"] for _, c in pool.children()))
            assert (await client.execute("about"))["pid"] != pids["0"]
            with pytest.raises(PoolUnavailable, match=r"7 is not connected \(there are: 0, 1\)"):
                await client.recycle("7")


async def test_children_that_are_gone_leave_no_descriptors(one: Workers) -> None:
    async with Client(one.path, timeout=60.0) as client:
        before = set[int]()
        held = []
        for _ in range(4):
            pid = (await client.execute("about"))["pid"]
            assert pid not in before
            before.add(pid)
            held.append(len(os.listdir("/proc/self/fd")))
            await client.recycle("0")
            until(lambda: all(child["pid"] not in before for _, child in one.children()))
    assert held[-1] <= held[0] + 1


async def test_closed_client_ends_its_calls(one: Workers) -> None:
    client = Client(one.path, timeout=60.0)
    calls: list[Call] = [client.start("wait", 5.0), client.start("echo")]
    await running(one, "wait")
    await client.close()
    await client.close()
    for call in calls:
        with pytest.raises(PoolClosed):
            await call
    with pytest.raises(PoolClosed):
        await client.sessions.create()
    async with Client(one.path) as other:
        assert await other.execute("echo", 1, timeout=60.0) == 1


def test_threads_that_wait_for_a_worker_end_when_another_one_closes_the_client(
    tmp_path: Path,
) -> None:
    client, errors = SyncClient(tmp_path, timeout=600.0), list[Exception]()
    started = threading.Barrier(9)

    def ask() -> None:
        started.wait()
        try:
            client.sessions.get("guest")
        except PoolError as error:
            errors.append(error)

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    started.wait()
    assert client.status() == {"workers": []}
    client.close()
    for thread in threads:
        thread.join(20.0)
    assert [type(error) for error in errors] == [PoolClosed] * 8


async def test_slow_reader_of_a_stream_holds_up_the_command_and_nobody_else(
    tmp_path: Path,
) -> None:
    with workers(tmp_path) as pool, pool.worker("0"), pool.worker("1"):
        async with Client(pool.path, timeout=60.0) as client:
            async with aclosing(client.stream("endless", 10_000, credit=4)) as parts:
                assert len(await anext(parts)) == 10_000
                for number in range(20):
                    assert await client.execute("echo", number) == number
                for _ in range(50):
                    await anext(parts)
            assert await client.execute("echo", 1) == 1
            until(lambda: not pool.running())


@pytest.mark.parametrize("command", ["endless", "numbers_async"])
async def test_stream_that_nobody_reads_gives_its_child_back(tmp_path: Path, command: str) -> None:
    with workers(tmp_path, "unread_timeout_s = 1.0\n") as pool, pool.worker():
        async with Client(pool.path, timeout=3600.0) as client:
            async with aclosing(client.stream(command, 1_000_000, credit=4)) as parts:
                await anext(parts)
                assert await client.execute("echo", 1, timeout=60.0) == 1
                with pytest.raises(DeadlineExceeded, match="unread_timeout_s") as caught:
                    async for _ in parts:
                        pass
                assert caught.value.ran
