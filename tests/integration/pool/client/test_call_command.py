"""`cordata call` against a manager by script."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from tests.integration.cli.command import cordata
from tests.integration.pool.managing import ENVIRONMENT
from tests.integration.pool.peer import Listening, Peer
from tests.servers.reaper import watched

from cordata.core.pool.message import CallFrame, Cancel, Chunk, End, ErrorFrame, Result


def raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.msgpack.encode(value))


@contextmanager
def managed(
    tmp_path: Path, answer: Callable[[Peer, CallFrame], None]
) -> Iterator[tuple[Path, Future[CallFrame]]]:
    """A configuration whose manager takes one call and answers it; the call as it came."""
    (tmp_path / "run").mkdir()
    file = tmp_path / "cordata.toml"
    file.write_text(f'[paths]\nstate = "{tmp_path}"\nruntime = "{tmp_path}/run"\n')

    def script(manager: Listening) -> CallFrame:
        manager.accept(20.0).close()  # it looks first whether somebody listens
        peer, hello = manager.welcome(20.0)
        assert hello.role == "client"
        with peer:
            frame = peer.expect(CallFrame)
            answer(peer, frame)
            assert peer.closed(20.0)
        return frame

    with Listening(tmp_path / "run" / "pool.sock") as manager, ThreadPoolExecutor(1) as threads:
        yield file, threads.submit(script, manager)


def refusing(code: str, **data: object) -> Callable[[Peer, CallFrame], None]:
    return lambda peer, frame: peer.send(ErrorFrame(id=frame.id, code=code, m="no", data=data))


def test_call_prints_the_result_and_says_what_the_options_ask(tmp_path: Path) -> None:
    def answer(peer: Peer, frame: CallFrame) -> None:
        peer.send(Result(id=frame.id, payload=raw({"total": 3})))

    with managed(tmp_path, answer) as (config, came):
        options = ("--session", "s", "--timeout", "5", "--idempotent", "--priority", "2")
        result = cordata("call", "sum", "--json", "[1, 2]", *options, "--config", str(config))
        frame = came.result(5.0)
    assert (result.returncode, json.loads(result.stdout)) == (0, {"total": 3})
    assert msgspec.msgpack.decode(frame.payload) == [1, 2]
    assert (frame.command, frame.session, frame.idempotent) == ("sum", "s", True)
    assert frame.priority == 2
    assert 0 < (frame.timeout_s or 0) <= 5.0


def test_stream_prints_a_line_for_each_part(tmp_path: Path) -> None:
    def answer(peer: Peer, frame: CallFrame) -> None:
        assert frame.credits > 0
        for part in ({"page": 1}, {"page": 2}):
            peer.send(Chunk(id=frame.id, payload=raw(part)))
        peer.send(End(id=frame.id))

    payload = tmp_path / "payload.json"
    payload.write_text('{"year": 2026}')
    with managed(tmp_path, answer) as (config, came):
        arguments = ("--file", str(payload), "--stream", "--config", str(config))
        result = cordata("call", "export", *arguments)
        assert msgspec.msgpack.decode(came.result(5.0).payload) == {"year": 2026}
    assert [json.loads(line) for line in result.stdout.splitlines()] == [{"page": 1}, {"page": 2}]


@pytest.mark.parametrize("options", [(), ("--stream",)], ids=["whole", "stream"])
def test_full_disk_is_said_to_be_one_when_the_result_is_written(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    def answer(peer: Peer, frame: CallFrame) -> None:
        peer.send((Chunk if frame.credits else Result)(id=frame.id, payload=raw(3)))

    with managed(tmp_path, answer) as (config, _), open("/dev/full", "w") as full:
        argv = [sys.executable, "-m", "cordata", "call", "sum", "--config", str(config), *options]
        done = subprocess.run(argv, env=ENVIRONMENT, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("error: cannot write the output: No space left on device\n")
    assert "bug" not in done.stderr


@pytest.mark.parametrize(("code", "status"), [("failed", 1), ("crashed", 1), ("saturated", 75)])
def test_exit_code_tells_whether_another_try_makes_sense(
    tmp_path: Path, code: str, status: int
) -> None:
    with managed(tmp_path, refusing(code)) as (config, _):
        result = cordata("call", "sum", "--config", str(config))
    assert (result.returncode, result.stdout) == (status, "")
    assert result.stderr.startswith("error: no")


def test_traceback_of_the_command_is_shown_with_debug_only(tmp_path: Path) -> None:
    trace = "Traceback: in the child\n"
    with managed(tmp_path, refusing("failed", traceback=trace)) as (config, _):
        result = cordata("call", "sum", "--config", str(config), "--debug")
    assert result.stderr == f"error: no\n{trace}"


def test_own_traceback_is_shown_with_debug_of_what_no_command_raised(tmp_path: Path) -> None:
    with managed(tmp_path, refusing("saturated")) as (config, _):
        result = cordata("call", "sum", "--config", str(config), "--debug")
    assert "Traceback" in result.stderr and "PoolSaturated: no" in result.stderr


def test_failed_and_crashed_calls_say_what_is_known(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with managed(tmp_path / "a", refusing("failed", type="KeyError")) as (config, _):
        result = cordata("call", "sum", "--config", str(config))
    assert result.stderr == "error: no\nhint: it raised KeyError; --debug shows where\n"
    lines = ["last words", "\x1b[2J"]
    with managed(tmp_path / "b", refusing("crashed", signal=11, lines=lines)) as (config, _):
        result = cordata("call", "sum", "--config", str(config))
    assert result.stderr == "error: no\nit wrote last:\n  last words\n  \\x1b[2J\n"


@pytest.mark.parametrize(
    ("near", "told"),
    [("sun", "did you mean 'sun'?"), ("", "`cordata pool status` shows the names of all")],
    ids=["near", "none"],
)
def test_call_of_an_unknown_command_says_what_to_do(tmp_path: Path, near: str, told: str) -> None:
    with managed(tmp_path, refusing("unknown_command", near=near)) as (config, _):
        result = cordata("call", "sum", "--config", str(config))
    assert (result.returncode, result.stderr) == (1, f"error: no\nhint: {told}\n")


def test_call_in_a_session_that_is_gone_says_where_to_look(tmp_path: Path) -> None:
    with managed(tmp_path, refusing("no_session")) as (config, came):
        result = cordata("call", "sum", "--session", "s", "--config", str(config))
        assert came.result(20.0).session == "s"
    assert result.returncode == 1 and "`cordata pool sessions`" in result.stderr


def test_call_says_that_nobody_answers_when_there_is_no_pool(tmp_path: Path) -> None:
    result = cordata("call", "sum", "--timeout", "0.1", "--state-dir", str(tmp_path))
    assert result.returncode == 75
    told = (
        r"there is no .*/pool.sock yet, waiting up to 0.1 s\nhint: start pool.socket.*--no-pool.*\n"
    )
    assert re.fullmatch(told + "error: nobody answered at .*\n", result.stderr)


@pytest.mark.parametrize("stale", [False, True], ids=["none", "stale"])
def test_call_gives_up_soon_where_nobody_listens(tmp_path: Path, stale: bool) -> None:
    (tmp_path / "run").mkdir()
    if stale:  # as a killed server leaves it
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(tmp_path / "run" / "pool.sock"))
    began = time.monotonic()
    result = cordata("call", "sum", "--state-dir", str(tmp_path))
    assert time.monotonic() - began < 30.0  # and not the 60 s of the call
    assert (result.returncode, result.stdout) == (75, "")
    reason = "nobody listens at" if stale else "there is no"
    assert result.stderr.startswith(f"{reason} {tmp_path}/run/pool.sock yet, waiting up to 5 s\n")


def test_call_is_taken_by_a_pool_that_comes_meanwhile(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    argv = [sys.executable, "-m", "cordata", "call", "sum", "--state-dir", str(tmp_path)]
    popen = subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    with watched(popen) as process:
        assert process.stderr is not None
        assert "waiting up to 5 s" in process.stderr.readline()
        with Listening(tmp_path / "run" / "pool.sock") as manager:
            manager.accept().close()  # it has looked whether somebody listens
            peer, _ = manager.welcome()
            with peer:
                frame = peer.expect(CallFrame)
                peer.send(Result(id=frame.id, payload=raw(3)))
                output, _ = process.communicate(timeout=20.0)
    assert (process.returncode, output) == (0, "3\n")


def test_call_fails_at_once_when_there_is_not_even_a_state_directory(tmp_path: Path) -> None:
    began = time.monotonic()
    result = cordata("call", "sum", "--state-dir", str(tmp_path / "no such"))
    assert time.monotonic() - began < 30.0  # and not the 60 s of the call
    assert (result.returncode, result.stdout) == (75, "")
    missing = re.escape(str(tmp_path / "no such"))
    told = rf"error: nobody answered at .*: there is no directory {missing}\nhint: start pool.*\n"
    assert re.fullmatch(told, result.stderr)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--json", "{"],
        ["--json", "1", "--file", "-"],
        ["--json", "[" * 100_000],
        ["--json", "9" * 40],
        ["--timeout", "nan"],
        ["--session", "\udcff"],
    ],
    ids=["no JSON", "two", "deep", "large number", "no time", "no UTF-8"],
)
def test_options_that_no_call_can_have_are_wrong_usage(
    arguments: list[str], tmp_path: Path
) -> None:
    result = cordata("call", "sum", *arguments, "--state-dir", str(tmp_path))
    assert (result.returncode, "bug" in result.stderr) == (2, False), result.stderr


@pytest.mark.parametrize("options", [(), ("--stream",)], ids=["whole", "stream"])
def test_interrupt_cancels_the_call_and_says_how_long_it_may_go_on(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    """Its connection ends, which is what `managed` waits for."""
    running: list[subprocess.Popen[str]] = []

    def answer(peer: Peer, frame: CallFrame) -> None:
        running[0].send_signal(signal.SIGINT)

    with managed(tmp_path, answer) as (config, came), calling(config, *options) as process:
        running.append(process)
        _, errors = process.communicate(timeout=20.0)
        came.result(5.0)
    assert process.returncode == 130
    told = r"cancelled: if slow has begun, .* go on for up to (29|30) s, .* --hard .*\n"
    assert re.fullmatch(told, errors)


@pytest.mark.parametrize("options", [(), ("--stream",)], ids=["whole", "stream"])
def test_interrupt_of_a_hard_call_has_its_process_killed(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    running: list[subprocess.Popen[str]] = []

    def answer(peer: Peer, frame: CallFrame) -> None:
        running[0].send_signal(signal.SIGINT)
        cancel = peer.expect(Cancel)
        assert (cancel.id, cancel.hard) == (frame.id, True)

    with managed(tmp_path, answer) as (config, came):
        with calling(config, "--hard", *options) as process:
            running.append(process)
            _, errors = process.communicate(timeout=20.0)
        came.result(5.0)
    assert process.returncode == 130
    assert re.fullmatch("cancelled: if slow has begun, .*its process killed.*\n", errors)


@contextmanager
def calling(config: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """`cordata call slow`, which may take 30 s, on its way."""
    options = ("slow", "--timeout", "30", "--config", str(config), *options)
    arguments = [sys.executable, "-m", "cordata", "call", *options]
    popen = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    with watched(popen) as process:
        yield process


#: A thread takes the signal, and the one that waits is not woken by it: as by one that comes right
#: before its system call.
ELSEWHERE = """
import os, signal, sys, threading
from cordata.pool import SyncClient

threading.Thread(target=threading.Event().wait, daemon=True).start()
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
with SyncClient(sys.argv[1]) as client:
    try:
        client.execute("slow")
    except KeyboardInterrupt:
        os._exit(130)
"""


def test_interrupt_that_wakes_nobody_ends_a_sync_call(tmp_path: Path) -> None:
    running: list[subprocess.Popen[bytes]] = []

    def answer(peer: Peer, frame: CallFrame) -> None:
        running[0].send_signal(signal.SIGINT)

    with managed(tmp_path, answer) as (_, came):
        arguments = [sys.executable, "-c", ELSEWHERE, str(tmp_path / "run" / "pool.sock")]
        popen = subprocess.Popen(arguments, env=ENVIRONMENT)
        with watched(popen) as process:
            running.append(process)
            assert process.wait(20.0) == 130
        came.result(5.0)
