"""Calls through a real manager, with the test as client, worker and child."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw
from tests.integration.pool.managing import ENVIRONMENT, exited, managed
from tests.servers.reaper import watched

from cordata.core.frame import pack
from cordata.core.pool.message import (
    Ask,
    CallFrame,
    Cancel,
    Chunk,
    Credit,
    End,
    ErrorFrame,
    Reply,
    Result,
)
from cordata.core.pool.order import Drain, Kill, Recycle, Run

#: A client that is another process: one call, and its answer.
_MODEST = """
import socket, sys
from cordata.core.pool.codec import encode
from cordata.core.pool.message import CallFrame, Hello
sock = socket.socket(socket.AF_UNIX)
sock.connect(sys.argv[1])
sock.sendall(encode(Hello(role="client")) + encode(CallFrame(1000, "echo")))
said = b""
while b"result" not in said:
    part = sock.recv(1 << 16)
    assert part
    said += part
"""


def raw(value: Any) -> Raw:
    return Raw(msgspec.msgpack.encode(value))


def value(payload: Raw) -> Any:
    return msgspec.msgpack.decode(payload)


def test_payload_and_result_pass_through_byte_for_byte(tmp_path: Path) -> None:
    # A float in eight bytes where four would do, an extension type: no codec writes these again.
    odd = b"\x92\xcb\x3f\xf0\x00\x00\x00\x00\x00\x00\xd4\x05\x01"
    with managed(tmp_path) as manager, manager.child() as child, manager.client() as client:
        client.send(CallFrame(1, "echo", Raw(odd), request_id="r-1"))
        run = child.expect(Run)
        assert (bytes(run.payload), run.request_id) == (odd, "r-1")
        assert 0 < run.d <= 60
        child.raw(pack(b"\x83\xa1t\xa6result\xa2id\x01\xa1p" + odd))
        assert bytes(client.expect(Result).payload) == odd


def test_large_payload_passes_through(tmp_path: Path) -> None:
    with managed(tmp_path) as manager, manager.child() as child, manager.client() as client:
        body = raw(b"x" * 8_000_000)
        client.socket.settimeout(30)
        client.send(CallFrame(1, "echo", body))
        run = child.expect(Run, timeout_s=30)
        child.socket.settimeout(30)
        child.send(Result(1, run.payload))
        assert client.expect(Result, timeout_s=30).payload == body


def test_freed_child_takes_the_oldest_waiting_call(tmp_path: Path) -> None:
    with managed(tmp_path) as manager, manager.child() as child, manager.client() as client:
        for id in range(1, 6):
            client.send(CallFrame(id, "echo"))
        for id in range(1, 6):
            assert child.expect(Run).id == id
            child.send(Result(id))
            assert client.expect(Result).id == id
        assert manager.status()["pools"]["default"]["wait_max_ms"] > 0


def test_pool_is_saturated_at_once_when_full(tmp_path: Path) -> None:
    with managed(tmp_path, "[pool]\nmax_waiting = 2\n") as manager, manager.client() as client:
        for id in range(1, 5):
            client.send(CallFrame(id, "echo"))
        for id in (3, 4):
            error = client.expect(ErrorFrame)
            assert (error.id, error.code, error.data) == (id, "saturated", {"retry_after_s": 1.0})
        manager.until_logged("pool default is full")
        assert manager.status()["saturated"] == 2


def test_deadline_ends_call_and_kills_child_that_goes_on(tmp_path: Path) -> None:
    settings = "[pool]\nkill_grace_s = 0.2\n"
    with managed(tmp_path, settings) as manager, manager.worker() as worker:
        with manager.child() as child, manager.client() as client:
            begun = time.monotonic()
            client.send(CallFrame(1, "echo", timeout_s=0.3))
            run = child.expect(Run)
            error = client.expect(ErrorFrame)
            assert (error.code, error.data) == ("deadline", {"ran": True})
            assert 0.3 <= time.monotonic() - begun < 1
            assert child.expect(Cancel).id == 1
            kill = worker.expect(Kill)
            assert (kill.n, kill.why, kill.pid) == (run.n, "deadline", os.getpid())
            manager.until_logged("its child is killed")


def test_deadline_in_queue_and_queue_timeout_say_that_it_never_ran(tmp_path: Path) -> None:
    with managed(tmp_path) as manager, manager.client() as client:
        client.send(CallFrame(1, "echo", timeout_s=0.1))
        client.send(CallFrame(2, "echo", queue_timeout_s=0.2))
        assert client.expect(ErrorFrame).data == {"ran": False}
        assert client.expect(ErrorFrame).code == "queue_timeout"
        with manager.child() as child:
            assert child.silent(0.2)


def test_cancelled_call_frees_the_child_only_with_its_answer(tmp_path: Path) -> None:
    with managed(tmp_path) as manager, manager.child() as child, manager.client() as client:
        client.send(CallFrame(1, "echo"))
        client.send(CallFrame(2, "echo"))
        child.expect(Run)
        client.send(Cancel(1))
        assert client.expect(ErrorFrame).code == "cancelled"
        child.expect(Cancel)
        assert child.silent(0.2)
        child.send(Result(1))
        assert child.expect(Run).id == 2
        assert client.silent(0.2)


def test_calls_of_client_that_is_gone_never_run(tmp_path: Path) -> None:
    with managed(tmp_path) as manager, manager.child() as child:
        with manager.client() as client:
            client.send(CallFrame(1, "echo"))
            client.send(CallFrame(2, "echo"))
            child.expect(Run)
        child.expect(Cancel)
        child.send(Result(1))
        assert child.silent(0.2)
        assert manager.status()["pools"]["default"]["waiting"] == 0


def test_stream_takes_credit_for_each_part(tmp_path: Path) -> None:
    with managed(tmp_path) as manager, manager.child() as child, manager.client() as client:
        client.send(CallFrame(1, "echo", credits=2))
        assert child.expect(Run).credits == 2
        child.send(Chunk(1, raw("a")))
        assert value(client.expect(Chunk).payload) == "a"
        client.send(Credit(1, 3))
        assert child.expect(Credit).n == 3
        child.send(End(1))
        assert client.expect(End).id == 1
        assert manager.status()["chunks"] == 1


def test_child_is_not_read_while_its_client_does_not_read(tmp_path: Path) -> None:
    part = raw(b"x" * 1_000_000)
    with managed(tmp_path) as manager, manager.child() as child, manager.client() as client:
        client.send(CallFrame(1, "echo", credits=1000))
        child.expect(Run)
        child.socket.settimeout(1.0)
        sent = 0
        try:
            while sent < 100:
                child.send(Chunk(1, part))
                sent += 1
        except TimeoutError:
            pass
        assert 0 < sent < 20
        assert manager.status()["connections"]["blocked"] == 1
        for _ in range(sent):
            client.expect(Chunk)
        manager.until(lambda found: not found["connections"]["blocked"], "the client reads again")


def test_crash_is_told_with_status_and_last_lines(tmp_path: Path) -> None:
    with managed(tmp_path) as manager, manager.worker() as worker, manager.client() as client:
        child = manager.child()
        client.send(CallFrame(1, "echo"))
        run = child.expect(Run)
        child.close()
        worker.send(exited(1, sig=11, lines=["last words"], n=run.n))
        error = client.expect(ErrorFrame)
        assert error.code == "crashed"
        assert error.data["signal"] == 11
        assert error.data["lines"] == ["last words"]
        assert manager.status()["restarts"] == {"crash": 1}


def test_idempotent_call_runs_again_elsewhere_unless_parts_were_passed_on(tmp_path: Path) -> None:
    with managed(tmp_path) as manager, manager.worker() as worker, manager.worker("1"):
        client, child = manager.client(), manager.child()
        client.send(CallFrame(1, "echo", idempotent=True))
        run = child.expect(Run)
        other = manager.child("1", start=2)
        child.close()
        worker.send(exited(1, sig=9, n=run.n))
        assert other.expect(Run).id == 1
        other.send(Result(1))
        client.expect(Result)
        other.close()
        child = manager.child(start=3)
        client.send(CallFrame(2, "echo", idempotent=True, credits=5))
        run = child.expect(Run)
        child.send(Chunk(2))
        client.expect(Chunk)
        child.close()
        worker.send(exited(3, sig=9, n=run.n))
        assert client.expect(ErrorFrame).code == "crashed"
        assert manager.status()["retries"] == 1
        client.close()


def test_command_that_kills_its_children_is_refused(tmp_path: Path) -> None:
    settings = "[pool]\npoison_limit = 2\n"
    with managed(tmp_path, settings) as manager, manager.worker() as worker:
        client = manager.client()
        for start in (1, 2):
            child = manager.child(start=start)
            client.send(CallFrame(start, "echo"))
            run = child.expect(Run)
            child.close()
            worker.send(exited(start, sig=11, n=run.n))
            assert client.expect(ErrorFrame).code == "crashed"
        client.send(CallFrame(3, "echo"))
        assert client.expect(ErrorFrame).code == "poisoned"
        manager.until_logged("command echo is refused")
        assert "echo" in manager.status()["poisoned"]
        client.close()


def test_unknown_command_is_refused_where_workers_are_known(tmp_path: Path) -> None:
    with managed(tmp_path) as manager, manager.worker(), manager.client() as client:
        for name, near in (("nothing", ""), ("ecoh", "echo"), ("echo" * 50, "")):
            client.send(CallFrame(1, name))
            error = client.expect(ErrorFrame)
            assert (error.code, error.data) == ("unknown_command", {"near": near})


def test_drained_worker_gets_no_calls_until_it_is_undone(tmp_path: Path) -> None:
    with managed(tmp_path) as manager, manager.worker() as worker, manager.child() as child:
        client, operator = manager.client(), manager.dial()
        operator.hello("operator")
        worker.send(Drain(True))
        manager.until(lambda found: found["workers"][0]["draining"], "it drains")
        client.send(CallFrame(1, "echo"))
        assert child.silent(0.2)
        operator.send(Ask(1, "undrain", name="0"))
        operator.expect(Reply)
        assert child.expect(Run).id == 1
        operator.send(Ask(2, "recycle", name="0"))
        worker.expect(Recycle)
        operator.expect(Reply)
        operator.send(Ask(3, "recycle", name="7"))
        assert "there are: 0" in operator.expect(ErrorFrame).m
        client.close()
        operator.close()


def test_named_pool_runs_its_commands_at_its_workers(tmp_path: Path) -> None:
    settings = '[pool.slow]\nworkers = ["1"]\ncommands = ["slow_*"]\n'
    with managed(tmp_path, settings) as manager, manager.client() as client:
        both = ("echo", "slow_one")
        fast = manager.child("0", cmds=both)
        slow = manager.child("1", start=2, cmds=both)
        client.send(CallFrame(1, "slow_one"))
        client.send(CallFrame(2, "echo"))
        assert slow.expect(Run).id == 1
        assert fast.expect(Run).id == 2
        pools = manager.status()["pools"]
        assert (pools["slow"]["busy"], pools["default"]["busy"]) == (1, 1)
        fast.close()
        slow.close()


def test_greedy_client_does_not_starve_another_when_fair(tmp_path: Path) -> None:
    """Clients of one process are one client, so the second one is another process."""
    with managed(tmp_path, "[pool]\nfair = true\n") as manager, manager.child() as child:
        greedy = manager.client()
        for id in range(1, 102):
            greedy.send(CallFrame(id, "echo"))
        child.expect(Run)
        argv = [sys.executable, "-c", _MODEST, str(manager.path)]
        other = watched(subprocess.Popen(argv, env=ENVIRONMENT))
        manager.until(lambda found: found["calls"] == 102, "both are there")
        child.send(Result(1))
        order = []
        for _ in range(3):
            order.append(child.expect(Run).id)
            child.send(Result(order[-1]))
        assert 1000 in order
        assert other.wait(20) == 0
        greedy.close()
