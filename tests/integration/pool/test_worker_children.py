"""A worker keeps its children alive, replaces them, kills what does not end, answers for them."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import resource
import signal
import socket
import stat
import threading
import time
from pathlib import Path

import pytest
from msgspec import Raw, msgpack
from tests.integration.pool.children import (
    CLIENT,
    COMMANDS,
    PATIENCE_S,
    Peer,
    Pool,
    alive,
    children,
    spec_of,
)
from tests.waiting import until

from cordata import events
from cordata.config.pool import PoolConfig
from cordata.errors import CordataError
from cordata.log import TrailFormatter
from cordata.pool.shared.protocol import (
    Cancel,
    DeathRequest,
    Failure,
    KillRequest,
    Reply,
    Result,
    SessionRequest,
    WorkerOrder,
)
from cordata.pool.worker.child_supervisor import ChildSupervisor
from cordata.pool.worker.process import ChildProcess
from cordata.pool.worker.spawning import make_directory


def running(pool: Pool, command: str, *arguments: object, **fields: object) -> Peer:
    """A connection whose call runs."""
    peer = pool.connect()
    number = peer.order(command, *arguments, **fields)  # type: ignore[arg-type]
    until(lambda: peer.page.begun == number)
    return peer


@pytest.fixture
def tickets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file for which a child waits before it is warm, each for one of its own."""
    monkeypatch.setenv("POOLED_TICKET", str(tmp_path / "ticket"))
    return tmp_path / "ticket"


def test_files_of_the_children_say_who_may_call(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        with children(tmp_path, children=2) as pool:
            names = [pool.name("0"), pool.name("0-1")]
            directory = pool.directory
            assert stat.S_IMODE(directory.stat().st_mode) == 0o750
            for name in names:
                assert stat.S_IMODE(name.socket.stat().st_mode) == 0o660
                assert stat.S_IMODE(name.status.stat().st_mode) == 0o640
            assert stat.S_IMODE((directory / "0.control.sock").stat().st_mode) == 0o660
            pids = {pool.connect(name).call("about", None)["pid"] for name in names}
            assert pids == {child.pid for child in pool.status().children}
    finally:
        os.umask(before)
    assert [file.name for file in directory.iterdir()] == ["0.lock"]


def test_path_may_be_longer_than_an_address(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    with children(long) as pool:
        assert pool.connect().call("echo", 1) == 1


def test_files_of_a_worker_that_was_killed_are_removed(tmp_path: Path) -> None:
    directory = tmp_path / "pool" / "default"
    directory.mkdir(parents=True)
    for name in ("0.1.sock", "0.1.status", ".0.2.sock", "0-7.1.sock", "1.1.sock", "1-0.1.sock"):
        (directory / name).touch()
    with children(tmp_path) as pool:
        until(lambda: pool.names() != [] and pool.name().generation > 1)
        pool.connect()
        left = {file.name for file in directory.iterdir()}
        assert left >= {"1.1.sock", "1-0.1.sock"}, "another worker's"
        assert not left & {"0.1.sock", "0.1.status", ".0.2.sock", "0-7.1.sock"}


def test_second_worker_of_one_name_does_not_start(tmp_path: Path) -> None:
    with children(tmp_path) as pool:
        assert pool.name()  # it is worker 0 by now
        with pytest.raises(CordataError, match="another process runs as worker 0"):
            with children(tmp_path):
                pass
        assert pool.connect().call("echo", 1) == 1


def test_killed_child_is_reported_and_followed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    with children(tmp_path) as pool:
        first = pool.name()
        peer = running(pool, "hang", None, id=42)
        until(lambda: "hanging" in caplog.text)
        pid = pool.child().pid
        assert (pool.child().command, pool.child().call_id) == ("hang", f"{CLIENT:x}-42")
        os.kill(pid, signal.SIGKILL)
        assert peer.closed()
        death = pool.ask(DeathRequest(5, first.generation))
        assert (death.number, death.known, death.signal, death.code) == (5, True, 9, None)
        assert (death.reason, death.lines) == ("", ["hanging"])
        until(lambda: pool.names() != [] and pool.name() != first)
        assert pool.connect().call("about", None)["pid"] != pid
        [crash] = [r for r in caplog.records if r.levelname == "ERROR"]
        assert crash.getMessage().endswith("was killed by SIGKILL in a call")
        assert crash.__dict__["MESSAGE_ID"] == events.POOL_CHILD_CRASHED
        assert crash.__dict__["CALL_ID"] == f"{CLIENT:x}-42"
        assert crash.__dict__["COMMAND"] == "hang"
        assert (pool.status().started, pool.status().crashed) == (2, 1)
        assert first.generation < pool.name().generation


def test_exit_of_a_command_is_a_death(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with children(tmp_path) as pool:
        name, peer = pool.name(), pool.connect()
        peer.order("die", "exit")
        assert peer.closed() and peer.page.begun == 1
        death = pool.ask(DeathRequest(1, name.generation))
        assert (death.code, death.signal, death.reason, death.lines) == (
            3,
            None,
            "",
            ["last words"],
        )
        # What a command writes may name somebody: it goes to the caller, and into no mail.
        [error] = [one for one in caplog.records if one.levelname == "ERROR"]
        assert error.getMessage().endswith("exited with 3 in a call")


def test_memory_limit_of_the_kernel_is_a_death_by_signal(tmp_path: Path) -> None:
    """As the OOM killer ends it: SIGKILL, which nobody of ours sent."""
    with children(tmp_path) as pool:
        name, peer = pool.name(), pool.connect()
        peer.order("die", int(signal.SIGKILL))
        assert peer.closed()
        death = pool.ask(DeathRequest(1, name.generation))
        assert (death.signal, death.reason) == (9, "")


def test_hang_is_killed_at_deadline_and_grace_though_its_caller_is_gone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with children(tmp_path) as pool:
        name, began = pool.name(), time.monotonic()
        running(pool, "hang", None, timeout_s=2.0).close()
        until(lambda: name not in pool.names())
        assert time.monotonic() - began >= 2.3
        death = pool.ask(DeathRequest(1, name.generation))
        assert (death.reason, death.signal) == ("deadline", 9)
        until(lambda: bool(pool.names()))
        assert pool.connect().call("echo", 1) == 1
    assert caplog.text.count("does not end: its child is killed (deadline)") == 1


def test_computing_without_a_pause_is_killed_at_its_deadline(tmp_path: Path) -> None:
    """A command that holds the interpreter's lock cannot be asked anything."""
    with children(tmp_path) as pool:
        peer = running(pool, "compute", 600.0, timeout_s=2.0)
        waiting = peer.order("echo", 1)
        peer.page.revoke(waiting)
        time.sleep(0.001)
        assert peer.page.begun == 1, "it is certain without the child"
        assert peer.closed()


def test_call_is_killed_on_request_but_no_other(tmp_path: Path) -> None:
    with children(tmp_path, cancel_grace_s=0.1) as pool:
        generation = pool.name().generation
        peer = running(pool, "hang", None)
        for asked in (
            KillRequest(1, generation + 1, CLIENT, 1),
            KillRequest(2, generation, CLIENT + 1, 1),
            KillRequest(3, generation, CLIENT, 2),
        ):
            assert pool.ask(asked) == Reply(asked.number)
        time.sleep(0.5)
        assert peer.silent(0.1)
        assert isinstance(pool.ask(KillRequest(4, generation, CLIENT, 1)), Reply)
        assert peer.closed()
        assert pool.ask(DeathRequest(5, generation)).reason == "cancelled"


def test_children_of_one_worker_are_told_apart(tmp_path: Path) -> None:
    with children(tmp_path, children=2, cancel_grace_s=0.1) as pool:
        first, second = pool.name("0"), pool.name("0-1")
        for name in (first, second):
            peer = pool.connect(name)
            number = peer.order("hang", None)
            until(lambda peer=peer, number=number: peer.page.begun == number)  # type: ignore[misc]
        assert isinstance(pool.ask(KillRequest(1, second.generation, CLIENT, 1)), Reply)
        death = pool.ask(DeathRequest(2, second.generation))
        assert (death.reason, death.signal) == ("cancelled", 9)
        assert pool.page(first).running
        # Or the stop would wait for its call's deadline.
        assert isinstance(pool.ask(KillRequest(3, first.generation, CLIENT, 1)), Reply)


def test_kill_of_a_call_that_has_ended_by_then_hits_no_other(tmp_path: Path) -> None:
    with children(tmp_path, cancel_grace_s=0.1) as pool:
        peer = running(pool, "wait", 30.0)
        peer.send(Cancel(1))
        peer.expect(Result)
        number = peer.order("wait", 0.6)  # which runs when the time is over
        until(lambda: peer.page.begun == number)
        pool.ask(KillRequest(1, pool.name().generation, CLIENT, 1))
        assert peer.expect(Result).number == number
        again = pool.connect()  # whose calls have the same numbers, as those of a client may
        number = again.order("wait", 0.6, id=3)
        until(lambda: again.page.begun == number)
        pool.ask(KillRequest(2, pool.name().generation, CLIENT, number))
        assert again.expect(Result).number == number


@pytest.mark.parametrize("limit", ["max_calls", "max_age_s", "max_rss_bytes", "order"])
def test_child_is_replaced_by_a_warm_one_without_a_gap(
    tmp_path: Path, tickets: Path, caplog: pytest.LogCaptureFixture, limit: str
) -> None:
    caplog.set_level("INFO")
    limits = {"max_calls": 3, "max_age_s": 1.0, "max_rss_bytes": 60_000_000}
    config = {limit: limits[limit]} if limit in limits else {}
    spec = {"inits": (f"{COMMANDS}:take_ticket",)}
    tickets.touch()
    with children(tmp_path, spec=spec, **config) as pool:
        first, peer = pool.name(), pool.connect()
        pid = peer.call("about", None)["pid"]
        if limit == "max_calls":
            peer.call("echo", 1), peer.call("echo", 2)
        elif limit == "max_rss_bytes":
            peer.call("grow", 80_000_000)
        elif limit == "order":
            assert isinstance(pool.ask(WorkerOrder(1, "recycle")), Reply)
        in_flight = peer.order("wait", 30.0)
        waiting = peer.order("echo", 1)
        until(lambda: peer.page.begun == in_flight)
        tickets.touch()  # now another one may warm up
        until(lambda: pool.name() != first)
        assert pool.connect().call("about", None)["pid"] != pid
        peer.send(Cancel(in_flight))
        assert peer.expect(Result).number == in_flight
        # The next one has not begun, unless the former child was told to leave after it.
        found = peer.receive()
        assert isinstance(found, Result) if peer.page.begun == waiting else found is None
        assert peer.closed()
        until(lambda: not alive(pid))
        replaced = [r for r in caplog.records if "is replaced by" in r.getMessage()]
        assert replaced[0].__dict__["MESSAGE_ID"] == events.POOL_CHILD_RECYCLED
        assert ("asked for" if limit == "order" else limit) in replaced[0].getMessage()


async def test_worker_sleeps_when_the_child_to_be_replaced_still_starts(tmp_path: Path) -> None:
    spec, passes = spec_of(tmp_path), 0

    def tick() -> None:
        nonlocal passes
        passes += 1
        asyncio.get_running_loop().call_soon(supervisor.recycle)  # after this pass

    make_directory(Path(spec.directory))
    supervisor = ChildSupervisor(spec, PoolConfig(), itertools.count())
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        group.create_task(supervisor.run(tick=tick))
        await supervisor.warmed.wait()
        assert passes < 20
        supervisor.stop()


def test_spare_takes_over_from_a_child_that_dies(tmp_path: Path, tickets: Path) -> None:
    tickets.touch()
    with children(tmp_path, spec={"inits": (f"{COMMANDS}:take_ticket",)}) as pool:
        pid = pool.child().pid
        until(lambda: pool.child().state == "ready")
        pool.ask(WorkerOrder(1, "recycle"))
        until(lambda: len(pool.status().children) == 2)
        spare = next(child for child in pool.status().children if child.spare)
        os.kill(pid, signal.SIGKILL)
        until(lambda: [(c.pid, c.spare) for c in pool.status().children] == [(spare.pid, False)])
        tickets.touch()
        until(lambda: pool.child().state == "ready")


def test_leaving_child_takes_no_connection_when_a_client_reads_slowly(tmp_path: Path) -> None:
    with children(tmp_path) as pool:
        first, idle, slow = pool.name(), pool.connect(), pool.connect()
        for _ in range(20):
            slow.order("echo", "x" * 30_000)
        idle.call("echo", 1)
        pool.ask(WorkerOrder(1, "recycle"))
        assert idle.closed()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as another:
            with pytest.raises(OSError):  # refused, or its file has gone
                another.connect(str(first.socket))


def test_child_with_many_clients_leaves_in_order(tmp_path: Path) -> None:
    """It has descriptors above 1023, which select(2) does not take."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, hard), hard))
    try:
        with children(tmp_path) as pool:
            first, idle = pool.name(), [pool.connect() for _ in range(600)]
            slow = pool.connect()
            for _ in range(20):
                slow.order("echo", "x" * 30_000)
            idle[0].call("echo", 1)  # the answers before it wait for their reader
            pool.ask(WorkerOrder(1, "recycle"))
            assert idle[0].closed()
            while isinstance(slow.receive(), Result):
                pass
            death = pool.ask(DeathRequest(2, first.generation))
            assert (death.code, death.reason) == (0, "stop")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_reload_changes_the_limits(tmp_path: Path) -> None:
    with children(tmp_path) as pool:
        first = pool.name()
        pool.connect().call("echo", 1)
        pool.reload(max_calls=1)
        until(lambda: pool.name() != first)


def test_drained_child_is_shown_as_such_at_once(tmp_path: Path) -> None:
    with children(tmp_path) as pool:
        peer = running(pool, "wait", 30.0)
        pool.ask(WorkerOrder(1, "drain"))
        assert (pool.page().drained, pool.child().state) == (1, "draining")
        peer.send(Cancel(1))
        peer.expect(Result)
        until(lambda: pool.child().state == "drained")
        assert pool.status().drained
        pool.ask(WorkerOrder(2, "undrain"))
        assert (pool.page().drained, pool.child().state) == (0, "ready")


def test_child_that_does_not_answer_is_replaced(tmp_path: Path) -> None:
    with children(tmp_path, health_s=0.2) as pool:
        name = pool.name()
        time.sleep(1.5)  # several pings, all answered
        assert pool.name() == name
        pool.reload(health_s=600.0, health_timeout_s=0.3)
        os.kill(pool.child().pid, signal.SIGSTOP)
        until(lambda: pool.ask(DeathRequest(1, name.generation)).known)
        assert pool.ask(DeathRequest(1, name.generation)).reason == "unhealthy"
        until(lambda: pool.names() not in ([], [name]))


@pytest.mark.parametrize(
    ("init", "told", "why"),
    [
        ("broken_init", r"RuntimeError at commands\.py:\d+", "init"),
        ("lengthy_init", "ImportError: no fonts " + 278 * "x", "init"),
        ("deadly_init", "it was killed by SIGKILL before it was warm", ""),
        ("slow_init", "it was not warm within init_timeout_s", "init"),
    ],
)
def test_child_that_cannot_warm_up_is_tried_again_and_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, init: str, told: str, why: str
) -> None:
    spec = {"inits": (f"{COMMANDS}:{init}",)}
    config = {"init_timeout_s": 0.5} if init == "slow_init" else {}
    with children(tmp_path, spec=spec, **config) as pool:
        until(lambda: pool.status().started >= 3)
        assert re.fullmatch(told, pool.status().start_error)
        assert pool.names() == []
        assert pool.status().crashed + pool.status().killed >= 2
    if init == "broken_init":
        errors = [TrailFormatter().format(r) for r in caplog.records if r.levelname == "ERROR"]
        assert all("could not warm up: RuntimeError" in error for error in errors)
        assert all("in broken_init" in error and "no fonts" not in error for error in errors)


@pytest.mark.parametrize("level", ["INFO", "DEBUG"])
def test_trace_of_a_missing_module_is_without_the_frames_of_the_import(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, level: str
) -> None:
    spec = {"commands": {"x": "not_there:x"}, "log_level": level}
    with children(tmp_path, spec=spec) as pool:
        until(lambda: pool.status().start_error != "")
        assert pool.status().start_error == "ModuleNotFoundError: No module named 'not_there'"
        text = "\n".join(map(TrailFormatter().format, caplog.records))
        assert "command_runner.py" in text and "<frozen importlib" not in text


def test_pauses_between_starts_grow_to_the_longest(tmp_path: Path) -> None:
    spec = {"inits": (f"{COMMANDS}:broken_init",)}
    with children(tmp_path, spec=spec, restart_first_s=0.1, restart_max_s=0.8) as pool:
        began = time.monotonic()
        until(lambda: pool.status().started >= 8)
        assert time.monotonic() - began > 8 * 0.1, "longer than if each were the first one"


def test_child_for_which_the_machine_lacks_something_is_tried_again(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with children(tmp_path) as pool:
        pid = pool.child().pid
        until(lambda: pool.child().state == "ready")
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))  # what is open stays
        try:
            os.kill(pid, signal.SIGKILL)
            until(lambda: pool.status().start_error != "")
            assert "Too many open files" in pool.status().start_error
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        until(lambda: pool.status().start_error == "" and pool.names() != [])


async def test_start_leaves_nothing_behind_when_it_runs_out_of_descriptors_at_any_point(
    tmp_path: Path,
) -> None:
    spec = spec_of(tmp_path)
    directory = Path(spec.directory)
    make_directory(directory)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before, failures = held(), 0
    for limit in range(3, soft):
        child = None
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))  # what is open stays
            child = ChildProcess(spec, on_message=lambda *_: None, on_exit=lambda *_: None)
        except OSError:
            failures += 1
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            if child is not None:
                child.destroy()
        assert (held(), list(directory.iterdir())) == (before, []), f"at a limit of {limit}"
        if child is not None:
            break
    assert failures > 10


def held() -> tuple[list[str], str]:
    """The descriptors and child processes of this process."""
    children = Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text()
    return sorted(os.listdir("/proc/self/fd")), children


def test_children_warm_up_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POOLED_MEETING", str(tmp_path / "meeting"))
    with children(tmp_path, spec={"inits": (f"{COMMANDS}:meet",)}, children=4) as pool:
        until(lambda: len(pool.names()) == 4)


def test_stop_waits_for_the_current_call(tmp_path: Path) -> None:
    with children(tmp_path) as pool:
        peer = Peer(pool.name().socket)  # ours, so that it outlives the pool
        peer.order("wait", 30.0)
        until(lambda: peer.page.begun == 1)
        waiting = peer.order("echo", 1)
        pid = pool.child().pid

        def end_when_told_to_leave() -> None:
            until(lambda: pool.child().state == "leaving")
            peer.send(Cancel(1))

        ending = threading.Thread(target=end_when_told_to_leave)
        ending.start()
    ending.join()
    assert isinstance(peer.receive(), Result)
    assert peer.closed() and peer.page.begun < waiting
    assert not alive(pid)
    peer.close()


def test_control_socket_answers_while_the_child_computes(tmp_path: Path) -> None:
    with children(tmp_path) as pool:
        running(pool, "compute", 600.0, timeout_s=600.0)
        assert pool.ask(SessionRequest(1, "create", "s")).sessions[0].id == "s"
        error = pool.ask(SessionRequest(2, "create", "s"))
        assert isinstance(error, Failure) and error.code == "session_exists"
        assert [one.id for one in pool.ask(SessionRequest(3, "page")).sessions] == ["s"]
        assert pool.child().state == "busy"
        os.kill(pool.child().pid, signal.SIGKILL)


def test_session_may_be_larger_than_a_message_of_a_client(tmp_path: Path) -> None:
    part = Raw(msgpack.encode(bytes(60_000)))
    with children(tmp_path, spec={"max_frame_bytes": 100_000}) as pool:
        pool.ask(SessionRequest(1, "create", "s"))
        for number in range(3):
            pool.ask(SessionRequest(2, "update", "s", set={str(number): part}))
        [session] = pool.ask(SessionRequest(3, "get", "s")).sessions
        assert session.data == dict.fromkeys("012", part)


def test_question_about_a_child_that_lives_is_answered_when_it_dies(tmp_path: Path) -> None:
    with children(tmp_path) as pool:
        child = pool.child()
        until(lambda: pool.child().state == "ready")
        pool.send(DeathRequest(1, child.generation))
        os.kill(child.pid, signal.SIGTERM)
        death = pool.answer()
        assert (death.known, death.signal) == (True, signal.SIGTERM)
        assert not pool.ask(DeathRequest(2, 7)).known


def test_control_socket_closes_who_sends_nonsense(tmp_path: Path) -> None:
    with children(tmp_path) as pool:
        pool.status()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
            sock.connect(str(pool.directory / "0.control.sock"))
            sock.send(b"nonsense")
            assert sock.recv(1000)
            assert sock.recv(1000) == b""
        assert pool.status().worker == "0"
