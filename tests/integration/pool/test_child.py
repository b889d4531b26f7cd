"""A real child runs the calls of the clients that connect to it."""

from __future__ import annotations

import fcntl
import mmap
import os
import re
import resource
import signal
import time
from pathlib import Path

import pytest
from msgspec import msgpack
from tests.integration.cli.command import python
from tests.integration.pool.children import CLIENT, COMMANDS, alive, children
from tests.waiting import until

from cordata import events
from cordata.alert import Alerter, AlertHandler, Buffer
from cordata.config.sections import AlertConfig, MailConfig
from cordata.log import TrailFormatter, handled_by
from cordata.pool.shared import page, protocol
from cordata.pool.shared.page import SETTLE_S
from cordata.pool.shared.protocol import (
    Call,
    Cancel,
    Chunk,
    CommandOptions,
    Credit,
    End,
    Failure,
    GlobalRequest,
    Hello,
    NotRun,
    Result,
    SessionRequest,
    batch,
    encode,
)
from cordata.pool.shared.spec import SessionLimits
from cordata.trace import trace_of

PAYLOADS = [None, True, -7, 1.5, "ü", b"\x00", [1, [2]], {"a": {"b": None}}]
PSS_BYTES = 20_000_000


def test_child_gives_back_what_it_gets(tmp_path: Path) -> None:
    with children(tmp_path) as pool:
        peer = pool.connect()
        for payload in PAYLOADS:
            assert peer.call("echo", payload) == payload
        page = pool.page()
        assert (page.ended, page.failed, page.running) == (len(PAYLOADS), 0, False)
        assert (page.client, page.id, page.command) == (CLIENT, len(PAYLOADS), "echo")


@pytest.mark.parametrize(
    ("way", "status"), [("return", 0), ("raise", 1), ("exit", 7), ("close", 0)]
)
def test_process_that_a_command_forks_answers_nothing_and_takes_no_calls(
    tmp_path: Path, way: str, status: int
) -> None:
    with children(tmp_path) as pool:
        peer = pool.connect()
        peer.order("fork", way)
        peer.order("add", 1)
        found = [msgpack.decode(peer.expect(Result).value) for _ in range(2)]
        assert found == [status, 2]
        assert peer.silent(0.2)
        assert pool.page().ended == 2


def test_process_that_a_command_forks_sends_no_chunks(tmp_path: Path) -> None:
    with children(tmp_path) as pool:
        peer = pool.connect()
        peer.order("fork_within_a_stream", credits=10)
        assert [msgpack.decode(peer.expect(Chunk).value) for _ in range(3)] == [1, 2, 3]
        peer.expect(End)
        assert peer.call("add", 1) == 2


def test_async_call_that_forked_is_cancelled(tmp_path: Path) -> None:
    with children(tmp_path) as pool:
        peer = pool.connect()
        number = peer.order("fork_and_wait", str(tmp_path / "forked"))
        until((tmp_path / "forked").exists)
        peer.send(Cancel(number))
        assert peer.expect(Failure).code == "cancelled"


def test_end_of_a_child_is_seen_while_a_process_that_it_forked_lives(tmp_path: Path) -> None:
    with children(tmp_path) as pool:
        peer = pool.connect()
        forked = peer.call("fork_away")
        try:
            os.kill(peer.welcome.pid, signal.SIGKILL)
            peer.socket.settimeout(10.0)
            assert peer.closed()
            assert alive(forked)
        finally:
            os.kill(forked, signal.SIGKILL)


def test_command_is_called_with_arguments_and_keywords(tmp_path: Path) -> None:
    with children(tmp_path) as pool:
        peer = pool.connect()
        assert peer.call("add", 1, 2) == 3
        assert peer.call("add", 1, keywords={"by": 4}) == 5
        error = peer.failure("add", 1, keywords={"times": 4})
        assert (error.code, error.data["type"]) == ("failed", "TypeError")


def test_large_messages_travel_both_ways(tmp_path: Path) -> None:
    with children(tmp_path, spec={"max_frame_bytes": 3_000_000}) as pool:
        peer = pool.connect()
        for size in (65_000, 66_000, 2_500_000):
            assert peer.call("echo", bytes(size)) == bytes(size)
        peer.call("echo", 1)  # by now the file of the last answer is closed
        files = len(os.listdir(f"/proc/{pool.child().pid}/fd"))
        for _ in range(5):
            peer.call("echo", bytes(100_000))
        peer.call("echo", 1)
        assert len(os.listdir(f"/proc/{pool.child().pid}/fd")) == files


def test_command_knows_its_call(tmp_path: Path) -> None:
    inits = (f"{COMMANDS}:warm_up", f"{COMMANDS}:warm_up_async")
    with children(tmp_path, spec={"inits": inits}) as pool:
        peer = pool.connect()
        for _ in "ab":
            about = peer.call("about", None, id=9, request_id="r-1", timeout_s=600.0)
            assert 500.0 < about.pop("remaining") <= 600.0
            assert about == {
                "id": f"{CLIENT:x}-9",
                "command": "about",
                "request_id": ["r-1", "r-1"],
                "cancelled": False,
                "warmed": ["sync", "async"],
                "pid": pool.child().pid,
                "left": "nothing",
                "session": None,
            }


def test_async_commands_share_one_loop(tmp_path: Path) -> None:
    with children(tmp_path) as pool:
        peer = pool.connect()
        pool.ask(SessionRequest(1, "create", "s"))
        first = peer.call("about_async", None, request_id="r-2", session="s")
        assert first[:2] == ["about_async", "r-2"]
        assert first[3:] == [["s", True], ["about_async", "r-2"]]
        assert peer.call("about_async", None, request_id="r-3")[3:] == [
            None,
            ["about_async", "r-3"],
        ]
        assert peer.call("about_async", None)[2] == first[2]
        assert peer.call("numbers_async", 3) == [0, 1, 2]
        assert peer.call("wait_async", 0.0) == "done"


def test_error_has_type_text_trace_and_arguments(tmp_path: Path) -> None:
    with children(tmp_path) as pool:
        peer = pool.connect()
        error = peer.failure("fail", "value")
        assert (error.code, error.message) == ("failed", "no value \\udcff")
        assert (error.data["type"], error.data["permanent"]) == ("ValueError", False)
        trace = error.data["traceback"]
        assert "commands.py" in trace and "command_runner.py" not in trace
        error = peer.failure("fail", "fault")
        assert (error.data["type"], error.data["permanent"]) == (f"{COMMANDS}.Fault", True)
        error = peer.failure("fail", "long")
        assert (len(error.message), len(error.data["traceback"])) == (4096, 16384)
        assert peer.failure("fail_async", None).data["arguments"] == ["later"]
        assert "object" in peer.failure("odd", None).message
        for command in ("large", "numbers"):
            error = peer.failure(command, 100_001)
            assert (error.code, "max_frame_bytes" in error.message) == ("frame_too_large", True)
            assert error.data["length_bytes"] > error.data["limit_bytes"] == 100_000
        assert len(peer.call("large", 99_000)) == 99_000


def test_call_that_does_not_begin_says_why(tmp_path: Path) -> None:
    with children(tmp_path) as pool:
        peer = pool.connect()
        peer.order("nothing")
        assert peer.expect(NotRun).reason == "unknown_command"
        peer.order("echo", timeout_s=-1.0)
        assert peer.expect(NotRun).reason == "deadline"
        runs = peer.order("wait", 30.0)
        until(lambda: peer.page.begun == runs)
        waiting = peer.order("echo", 1)
        peer.page.revoke(waiting)
        peer.send(Cancel(waiting))  # says nothing of the one that runs
        peer.send(Cancel(runs))
        assert peer.expect(Result).number == peer.page.begun == runs
        assert peer.expect(NotRun) == NotRun(waiting, "revoked")
        until(lambda: pool.page().waiting == 0)  # else others would take it for busy


def test_child_begins_nothing_while_its_worker_holds_it(tmp_path: Path) -> None:
    with children(tmp_path) as pool:
        peer = pool.connect()
        with pool.name().status.open("r+b") as file:
            shared = mmap.mmap(file.fileno(), page.SIZE)
        page.set_paused(shared, True)
        peer.order("echo", 1)
        assert peer.silent(0.1) and peer.page.begun == pool.page().begun == 0
        page.set_paused(shared, False)
        assert msgpack.decode(peer.expect(Result).value) == 1
        shared.close()


def test_child_that_waited_for_a_session_begins_nothing_while_its_worker_holds_it(
    tmp_path: Path,
) -> None:
    with children(tmp_path) as pool:
        peer = pool.connect()
        pool.ask(SessionRequest(1, "create", "s"))
        with pool.name().status.open("r+b") as file:
            shared = mmap.mmap(file.fileno(), page.SIZE)
        with (tmp_path / "sessions.db.lock").open("r+b") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            peer.order("echo", 1, session="s")  # the first use of a session is written
            waits = re.compile(rf"-> FLOCK +ADVISORY +WRITE {peer.welcome.pid} ")
            until(lambda: waits.search(Path("/proc/locks").read_text()) is not None)
            assert pool.page().waiting == 1, "or others would take it for free"
            page.set_paused(shared, True)
        assert peer.silent(0.1) and peer.page.begun == pool.page().begun == 0
        page.set_paused(shared, False)
        assert msgpack.decode(peer.expect(Result).value) == 1
        shared.close()


def test_call_that_was_revoked_never_begins(tmp_path: Path) -> None:
    note = str(tmp_path / "note")
    with children(tmp_path) as pool:
        peer = pool.connect()
        peer.order("wait", 30.0)
        until(lambda: peer.page.begun == 1)
        first, second = peer.order("note", [note, 1, 0]), peer.order("note", [note, 2, 0])
        peer.page.revoke(second)
        time.sleep(SETTLE_S)
        assert peer.page.begun == 1
        peer.send(Cancel(1))
        peer.expect(Result)
        for number in (first, second):
            assert peer.expect(NotRun) == NotRun(number, "revoked")
        assert peer.call("note", [note, 3, 0]) == 3
        assert Path(note).read_text() == "3\n"


def test_welcome_says_what_the_child_knows(tmp_path: Path) -> None:
    options = {"echo": CommandOptions(5.0, True, 2)}
    with children(tmp_path, spec={"options": options}) as pool:
        welcome = pool.connect().welcome
        assert welcome.pid == pool.child().pid
        assert welcome.commands["echo"] == options["echo"]
        assert welcome.commands["about"] == CommandOptions()


def test_stream_waits_for_credit(tmp_path: Path) -> None:
    with children(tmp_path) as pool:
        peer = pool.connect()
        for command in ("numbers", "numbers_async"):
            number = peer.order(command, 3, credits=1)
            assert msgpack.decode(peer.expect(Chunk).value) == 0
            assert peer.silent(0.1)
            peer.send(Credit(number + 1, 5))  # another call's
            assert peer.silent(0.05)
            peer.send(Credit(number, 5))
            assert [msgpack.decode(peer.expect(Chunk).value) for _ in "ab"] == [1, 2]
            assert peer.expect(End).number == number
        assert peer.call("numbers", 3) == [0, 1, 2]
        peer.order("echo", "one", credits=4)
        assert msgpack.decode(peer.expect(Chunk).value) == "one"
        peer.expect(End)


def test_stream_ends_by_cancel_deadline_and_a_reader_that_takes_nothing(tmp_path: Path) -> None:
    with children(tmp_path, spec={"unread_timeout_s": 2.0}) as pool:
        peer = pool.connect()
        number = peer.order("endless", None, credits=2)
        peer.expect(Chunk), peer.expect(Chunk)
        peer.send(Cancel(number))
        assert peer.expect(Failure).code == "cancelled"
        peer.order("endless", None, credits=1, timeout_s=1.0)
        peer.expect(Chunk)
        error = peer.expect(Failure)
        assert (error.code, error.data) == ("deadline", {"ran": True})
        for payload, credits in ((1000, 1), (60_000, 1000)):  # of those the socket takes a few
            began = time.monotonic()
            number = peer.order("endless", payload, credits=credits)
            until(lambda number=number: peer.page.begun == number)  # type: ignore[misc]
            until(lambda: not pool.page().running)
            assert time.monotonic() - began >= 2.0
            while isinstance(found := peer.receive(), Chunk):
                pass
            assert found.code == "deadline" and "unread_timeout_s" in found.message
        assert peer.call("echo", 1) == 1


def test_client_that_does_not_read_holds_no_child(tmp_path: Path) -> None:
    with children(tmp_path) as pool:
        lazy, other = pool.connect(), pool.connect()
        for _ in range(30):
            lazy.order("large", 60_000)
        assert other.call("echo", 1) == 1
        for _ in range(30):
            assert len(msgpack.decode(lazy.expect(Result).value)) == 60_000


@pytest.mark.parametrize(("command", "answer"), [("wait", Result), ("wait_async", Failure)])
def test_cancelled_command_is_told(tmp_path: Path, command: str, answer: type) -> None:
    with children(tmp_path) as pool:
        peer = pool.connect()
        number = peer.order(command, 30.0)
        peer.send(Cancel(number))
        assert peer.receive().__class__ in (answer, NotRun)
        number = peer.order(command, 30.0)
        until(lambda: peer.page.begun == number)
        peer.send(Cancel(number))
        assert peer.expect(answer).number == number
        peer.send(Cancel(number))  # too late: it was answered
        assert peer.call("echo", 1) == 1


def test_command_is_told_when_its_caller_is_gone(tmp_path: Path) -> None:
    note = tmp_path / "cancelled"
    with children(tmp_path) as pool:
        peer, other = pool.connect(), pool.connect()
        peer.order("note_cancel", [str(note), 600.0], timeout_s=600.0)
        peer.order("note", [str(tmp_path / "never"), 1, 0])
        until(lambda: peer.page.begun == 1)
        peer.close()
        until(note.exists)
        assert other.call("echo", 1) == 1
        assert not (tmp_path / "never").exists()


def test_async_command_ends_at_its_deadline(tmp_path: Path) -> None:
    with children(tmp_path) as pool:
        assert pool.connect().failure("wait_async", 30.0, timeout_s=1.0).code == "deadline"


def test_session_is_changed_by_calls_that_succeed(tmp_path: Path) -> None:
    with children(tmp_path) as pool:
        peer = pool.connect()
        assert peer.failure("remember", {}, session="s").code == "no_session"
        data = {"a": 1, "b": [2]}
        pool.ask(SessionRequest(1, "create", "s", set=data))  # type: ignore[arg-type]
        pool.ask(SessionRequest(2, "count", "s", count={"seen": 4}))
        orders = {"set": {"c": 3}, "del": ["a"], "count": {"seen": 1, "never": 0}}
        assert peer.call("remember", orders, session="s")["data"] == data
        error = peer.failure("remember", {"set": {"b": 0}, "fail": True}, session="s")
        assert error.code == "failed"
        peer.order("remember", {"gset": {"g": 1}}, session="s")
        result = peer.expect(Result)
        assert (result.session_worker, result.affinity) == ("0", "hint")
        before = msgpack.decode(result.value)
        assert (before["data"], before["counters"]) == ({"b": [2], "c": 3}, {"seen": 5})
        [state] = pool.ask(SessionRequest(3, "get", "s")).sessions
        assert {key: msgpack.decode(value) for key, value in state.data.items()} == before["data"]
        assert msgpack.decode(pool.ask(GlobalRequest(4, "get")).values["g"]) == 1
        peer.order("numbers", 2, credits=9, session="s")
        peer.expect(Chunk), peer.expect(Chunk), peer.expect(End)
        assert peer.call("remember", {}, session="s")["data"]["last"] == 1


def test_call_that_changes_too_much_changes_nothing(tmp_path: Path) -> None:
    limits = SessionLimits(max_session_bytes=1000)
    spec = {"session_limits": limits, "max_frame_bytes": 4_000_000}
    with children(tmp_path, spec=spec) as pool:
        peer = pool.connect()
        pool.ask(SessionRequest(1, "create", "s"))
        orders = {"gset": {"g": 1}, "set": {"large": bytes(2000)}}
        assert peer.failure("remember", orders, session="s").code == "quota"
        orders = {"gset": {str(n): n for n in range(65_530)}, "set": {str(n): n for n in range(7)}}
        error = peer.failure("remember", orders, session="s")
        assert (error.code, "65536 changes" in error.message) == ("frame_too_large", True)
        before = peer.call("remember", {}, session="s")
        assert (before["data"], before["globals"]) == ({}, {})


def test_strict_session_runs_at_its_worker_only(tmp_path: Path) -> None:
    with children(tmp_path, children=2) as pool:
        first, second = pool.connect(pool.name("0")), pool.connect(pool.name("0-1"))
        pool.ask(SessionRequest(1, "create", "s", affinity="strict_queue"))
        assert first.call("echo", 1, session="s") == second.call("echo", 1, session="s") == 1
        pool.ask(SessionRequest(1, "create", "other", worker="1", affinity="strict_queue"))
        number = second.order("echo", 2, session="other")
        assert second.expect(NotRun) == NotRun(number, "moved", "1", "strict_queue")
        pool.ask(SessionRequest(1, "create", "soft"))
        assert first.call("echo", 1, session="soft") == second.call("echo", 1, session="soft") == 1


def test_strict_session_of_another_pools_worker_may_run_here(tmp_path: Path) -> None:
    with children(tmp_path, spec={"pools": {"7": "other"}}) as pool:
        peer = pool.connect()
        for worker, reason in (("7", None), ("8", "moved")):
            id = f"s-{worker}"
            pool.ask(SessionRequest(1, "create", id, worker=worker, affinity="strict_fail"))
            peer.order("echo", 1, session=id)
            found = peer.receive()
            if reason:
                assert found == NotRun(peer.number, "moved", worker, "strict_fail")
            else:
                assert (found.session_worker, found.affinity) == ("", "")


def test_peer_that_breaks_the_protocol_is_disconnected_and_no_other(tmp_path: Path) -> None:
    with children(tmp_path) as pool:
        other = pool.connect()
        for data in (b"\xc1", b"\x91\xa1?", b"x" * 1000, batch([encode(Hello(7, 1))])):
            peer = pool.connect(greet=False)
            protocol.send(peer.socket, data)
            assert peer.expect(Failure).number == 0
            assert peer.closed()
        peer = pool.connect(greet=False)
        peer.order("echo", 1)
        assert "hello" in peer.expect(Failure).message
        peer = pool.connect()
        protocol.send(peer.socket, batch([encode(Call(1, "echo", b"x" * 200_000, {}, 0.0, 1))]))
        assert peer.expect(Failure).code == "frame_too_large"
        assert peer.closed()
        assert other.call("echo", 1) == 1


def test_child_without_descriptors_takes_a_connection_later_and_does_not_spin(
    tmp_path: Path,
) -> None:
    with children(tmp_path) as pool:
        peer = pool.connect()
        pid = peer.welcome.pid
        files = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
        free = next(number for number in range(len(files) + 1) if number not in files)
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (free, before[1]))
        waiting = pool.connect(greet=False)
        used_s = _processor_s(pid)
        assert waiting.silent(1.0)
        assert _processor_s(pid) - used_s < 0.3
        assert peer.call("echo", 1) == 1
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
        waiting.order("echo", 1)
        assert "hello" in waiting.expect(Failure).message


def _processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_page_of_a_connection_that_may_shrink_is_refused(tmp_path: Path) -> None:
    with children(tmp_path) as pool:
        peer = pool.connect(greet=False)
        file = os.memfd_create("test")
        os.ftruncate(file, 4096)
        protocol.send(peer.socket, batch([encode(Hello(protocol.VERSION, 1))]), [file])
        os.close(file)
        assert "sealed" in peer.expect(Failure).message


@pytest.mark.parametrize(("how", "status"), [("exit", 3), ("abort", 1), ("interrupt", 1)])
def test_command_that_ends_its_process_does_so_at_once_whatever_threads_it_left(
    tmp_path: Path, how: str, status: int
) -> None:
    with children(tmp_path) as pool:
        name, peer = pool.name(), pool.connect()
        peer.order("leave_a_thread", how)
        assert peer.closed()
        death = pool.ask(protocol.DeathRequest(1, name.generation))
        assert (death.known, death.code, death.signal) == (True, status, None)


SECRET = "eva@example.com"
#: How a command fails beside its call, and what is told of it.
LEAKS = {
    "log": "shop.pdf: no rate",
    "arguments": "a log call at ",
    "thread": "failed with KeyError",
    "object": "LookupError in ",
    "task": "exception was never retrieved",
    "exit": "the process ends by SystemExit",
    "abort": "the process ends by Abort",
}


@pytest.mark.parametrize("how", LEAKS)
def test_output_has_no_message_of_an_exception(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    command = "leak_async" if how == "task" else "leak"
    for level in ("INFO", "DEBUG"):
        caplog.clear()
        caplog.set_level("DEBUG")
        with children(tmp_path, spec={"log_level": level}) as pool:
            peer = pool.connect()
            peer.order(command, [how, SECRET])
            if how in ("exit", "abort"):
                assert peer.closed()
            else:
                peer.expect(Result)
            until(lambda: LEAKS[how] in caplog.text)
        lines = [r for r in caplog.records if r.name == "cordata.pool.child"]
        text = "\n".join(map(TrailFormatter().format, lines))
        # A failed log call tells its place, at whatever level.
        assert (SECRET in text) is (level == "DEBUG" and how != "arguments"), text
        assert "commands.py:" in text or level == "DEBUG"


def test_error_with_an_exception_is_one_record_and_one_alert(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    alerts = Buffer()
    alerter = Alerter(
        AlertConfig(), MailConfig(), login=None, directories=[tmp_path], postpone=lambda one: None
    )
    handler = AlertHandler(alerter, alerts, place="host worker@0")
    with handled_by(handler), children(tmp_path) as pool:
        peer = pool.connect()
        peer.call("leak", ["log", SECRET], id=7)
        until(lambda: "no rate" in caplog.text)
        peer.call("speak", "a")
        until(lambda: "unfinished" in caplog.text)
    [record] = [r for r in caplog.records if r.levelname == "ERROR"]
    assert record.getMessage() == "shop.pdf: no rate"
    assert record.__dict__["CALL_ID"] == f"{CLIENT:x}-7"
    [alert] = alerts.take()
    assert (alert.title, alert.count) == ("shop.pdf: no rate", 1)
    assert re.search(r"\nLookupError\n  \S+/commands\.py:\d+ in leak$", alert.sample)


def test_output_is_in_the_journal_with_its_call(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    with children(tmp_path) as pool:
        peer = pool.connect()
        peer.call("echo", 1, id=1)
        peer.call("speak", "a", id=8, request_id="r-5")
        until(lambda: "unfinished" in caplog.text)
        forged = "r\n\x1e7-7 forged"
        peer.call("speak", "b", id=9, request_id=forged, traceparent=forged)
        until(lambda: "printed b" in caplog.text)
        lines = [r for r in caplog.records if r.name == "cordata.pool.child"]
        assert [(r.levelname, TrailFormatter().format(r)) for r in lines[:4]] == [
            ("INFO", "printed a"),
            ("INFO", "to stderr"),
            ("WARNING", "shop.pdf: logged\ntwice"),
            ("INFO", "unfinished"),
        ]
        told = lines[0].__dict__
        assert (told["WORKER"], told["CHILD_PID"]) == ("0", pool.child().pid)
        assert (told["CALL_ID"], told["REQUEST_ID"]) == (f"{CLIENT:x}-8", "r-5")
        assert told["MESSAGE_ID"] == events.POOL_CHILD_OUTPUT
        of_call = trace_of("r-5", operation=[f"{CLIENT:x}-8"])
        assert (told["TRACE_ID"], told["SPAN_ID"]) == (of_call.trace_id, of_call.span_id)
        [printed] = [r for r in lines if r.getMessage() == "printed b"]
        assert printed.__dict__["CALL_ID"] == f"{CLIENT:x}-9"
        assert not {"REQUEST_ID", "TRACE_ID"} & set(printed.__dict__)
        given = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        peer.call("speak", "c", id=10, request_id="r-6", traceparent=given)
        until(lambda: "printed c" in caplog.text)
        [printed] = [r for r in caplog.records if r.getMessage() == "printed c"]
        assert printed.__dict__["TRACE_ID"] == "4bf92f3577b34da6a3ce929d0e0e4736"


def test_child_is_lean(tmp_path: Path) -> None:
    # The commands of these tests use asyncio themselves.
    heavy = (
        *("click", "uvloop", "sqlite3"),
        *("cordata.store", "cordata.http", "cordata.app", "cordata.config"),
    )
    with children(tmp_path) as pool:
        loaded = pool.connect().call("modules", None)
        assert not [name for name in loaded if name.startswith(heavy)]
    lean = {"lean": "tests.integration.pool.child.lean:look"}
    with children(tmp_path, spec={"commands": lean}) as pool:
        loaded = pool.connect().call("lean", None)
        assert not [name for name in loaded if name.startswith((*heavy, "asyncio", "ssl", "email"))]
        pid = pool.child().pid
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        pss = re.search(r"^Pss: +(\d+) kB", rollup, re.MULTILINE)
        assert pss is not None
        print(f"PSS of a child: {int(pss[1])} kB")
        assert int(pss[1]) * 1024 < PSS_BYTES
        # 0, 1, 2, the channel, the listener, the connection, and the two pages.
        assert len(os.listdir(f"/proc/{pid}/fd")) == 8
        # No thread answers pings while a command hangs: what is answered, the loop has read.
        assert os.listdir(f"/proc/{pid}/task") == [str(pid)]


_HARDENED = """
import ctypes, logging, sys
from pathlib import Path
from tests.integration.pool.children import children

logging.basicConfig(level=logging.DEBUG, stream=sys.stdout)
if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0) != 0:  # PR_SET_MDWE, which a child inherits
    sys.exit("this kernel has no such flag")
with children(Path(sys.argv[1]), spec={"log_level": "DEBUG"}) as pool:
    peer = pool.connect()
    peer.call("about_async", None)
    peer.call("speak", None)
"""


def test_child_starts_where_no_memory_is_writable_and_executable(tmp_path: Path) -> None:
    """As its unit says by MemoryDenyWriteExecute=; and it asks for its signal all the same."""
    done = python("-c", _HARDENED, str(tmp_path))
    if "no such flag" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    assert "not logged" in done.stdout  # at debug
    assert "no signal" not in done.stdout


def test_child_gets_no_word_with_systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "CREDENTIALS_DIRECTORY", "CORDATA_CONFIG"):
        monkeypatch.setenv(name, "x")
    with children(tmp_path) as pool:
        pool.connect()
        told = Path(f"/proc/{pool.child().pid}/environ").read_text()
        assert "PATH=" in told
        for name in ("NOTIFY_SOCKET", "WATCHDOG_", "CREDENTIALS_", "CORDATA_"):
            assert f"\0{name}" not in f"\0{told}"


def test_what_a_command_started_dies_with_its_child(tmp_path: Path) -> None:
    with children(tmp_path) as pool:
        grandchild = pool.connect().call("start_another", None)
        assert alive(grandchild)
        os.kill(pool.child().pid, signal.SIGKILL)
        until(lambda: not alive(grandchild))
