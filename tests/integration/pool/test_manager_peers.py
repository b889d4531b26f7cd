"""The handshake, and frames that are none, against a real manager."""

from __future__ import annotations

import gc
import os
import signal
import struct
import subprocess
import sys
import weakref
from pathlib import Path

import msgspec
from msgspec import Raw
from tests.integration.pool.inside import inside
from tests.integration.pool.managing import ENVIRONMENT, START, managed

from cordata.core.frame import pack
from cordata.core.pool.codec import encode
from cordata.core.pool.message import (
    Ask,
    Bye,
    CallFrame,
    ErrorFrame,
    Goaway,
    Hello,
    Ping,
    Pong,
    Result,
    Welcome,
)
from cordata.core.pool.order import ChildEvent, Run


def test_manager_welcomes_each_role(tmp_path: Path) -> None:
    with managed(tmp_path) as manager:
        with manager.dial() as peer:
            welcome = peer.hello("client", v=9)
            assert (welcome.v, welcome.max, len(welcome.epoch)) == (1, 16_777_216, 16)
        with manager.worker(), manager.child(), manager.dial() as operator:
            assert operator.hello("operator").epoch == welcome.epoch
            assert manager.status()["connections"]["taken"] == {
                "client": 1,
                "worker": 1,
                "child": 1,
                "operator": 2,
            }


def test_manager_refuses_hello_it_cannot_use(tmp_path: Path) -> None:
    refused = [
        (Hello(role="client", v=9, vmin=2), "version"),
        (Hello(role="client", pid=os.getpid() + 1), "protocol"),
        (Hello(role="worker", pid=os.getpid()), "protocol"),
        (Ping(1), "protocol"),
    ]
    with managed(tmp_path) as manager:
        for message, code in refused:
            with manager.dial() as peer:
                peer.send(message)
                assert peer.expect(ErrorFrame).code == code
                assert peer.closed()
        manager.until_logged("was refused")
        assert manager.log.count("was refused") == 1  # once a minute for each process


def test_manager_closes_connection_without_hello(tmp_path: Path) -> None:
    with managed(tmp_path) as manager, manager.dial() as peer:
        peer.raw(b"\x00\x00\x00\x10")
        assert peer.expect(ErrorFrame, timeout_s=10).code == "protocol"
        assert peer.closed()


def test_client_goes_on_after_frames_that_are_no_messages(tmp_path: Path) -> None:
    with managed(tmp_path, "[pool]\nmax_frame_bytes = 2000\nmax_session_bytes = 1000\n") as manager:
        with manager.client() as client:
            client.raw(pack(msgspec.msgpack.encode({"t": "what", "id": 5})))
            error = client.expect(ErrorFrame)
            assert (error.id, error.code) == (5, "protocol")
            client.send(CallFrame(6, "echo", Raw(msgspec.msgpack.encode(b"x" * 3000))))
            error = client.expect(ErrorFrame)
            assert (error.id, error.code) == (6, "frame_too_large")
            client.send(Ask(7, "status"))
            assert client.expect(ErrorFrame).code == "forbidden"
            client.send(Ping(8))
            assert client.expect(Pong).id == 8
        assert manager.status()["traffic"]["too_large"] == 1


def test_connection_ends_when_bytes_are_no_frames(tmp_path: Path) -> None:
    with managed(tmp_path) as manager:
        for garbage in (pack(b"\xc1"), b"\x00\x00\x00\x00", struct.pack(">I", 1 << 31)):
            with manager.client() as client:
                client.raw(garbage)
                client.expect(ErrorFrame)
                assert client.closed()


def test_connection_above_the_limit_is_told_so(tmp_path: Path) -> None:
    with managed(tmp_path, "[pool]\nmax_connections = 2\n") as manager:
        with manager.client(), manager.client(), manager.dial() as third:
            third.send(Hello(role="client"))
            assert third.expect(ErrorFrame).code == "saturated"
            assert third.closed()


def test_second_hello_of_same_child_closes_the_first(tmp_path: Path) -> None:
    with managed(tmp_path) as manager, manager.worker(), manager.child() as first:
        with manager.child() as second, manager.client() as client:
            assert first.closed()
            client.send(CallFrame(1, "echo"))
            assert second.expect(Run).command == "echo"


def test_child_whose_place_was_given_away_is_closed_so_that_it_dials_again(tmp_path: Path) -> None:
    with managed(tmp_path) as manager, manager.worker() as worker, manager.child() as child:
        worker.send(ChildEvent("started", os.getpid(), START + 2))
        assert child.closed()
        with manager.child() as child, manager.client() as client:
            client.send(CallFrame(1, "echo"))
            assert child.expect(Run).command == "echo"


def test_child_of_another_worker_of_that_name_is_refused(tmp_path: Path) -> None:
    with managed(tmp_path) as manager, manager.worker(), manager.dial() as stray:
        stray.send(Hello(role="child", name="0", pid=os.getpid(), start=START, par=os.getppid()))
        refusal = stray.expect(ErrorFrame)
        assert refusal.code == "forbidden"
        assert refusal.m == f"worker 0 is process {os.getpid()}, and not {os.getppid()}"
        assert stray.closed()
        with manager.child(par=os.getpid()) as child, manager.client() as client:
            client.send(CallFrame(1, "echo"))
            assert child.expect(Run).command == "echo"


async def test_connection_that_ended_leaves_nothing_behind(tmp_path: Path) -> None:
    async with inside(tmp_path) as manager:
        peers = [await manager.dial("worker"), await manager.dial("child"), await manager.dial()]
        links = [weakref.ref(link) for link in manager.hub.links]
        gc.disable()  # it would come after hours
        try:
            for peer in reversed(peers):
                peer.close()
            await manager.until(lambda: not any(link() for link in links))
        finally:
            gc.enable()


#: Says hello as a spare, and is gone before anybody reads it.
_LATE = """
import os, sys
from pathlib import Path
from tests.integration.pool.peer import Peer, dialled
from cordata.core.pool.message import Hello
from cordata.pool.fingerprint import start_of

with dialled(Path(sys.argv[1])) as peer:
    hello = Hello(role="child", name="0", pid=os.getpid(), start=start_of(), spare=True)
    peer.send(hello)
"""


def test_hello_of_a_process_that_died_in_the_backlog_leaves_no_row(tmp_path: Path) -> None:
    with managed(tmp_path) as manager:
        manager.end(signal.SIGKILL)
        late = [sys.executable, "-c", _LATE, str(manager.path)]
        with manager.dial() as worker:  # before it in the backlog, so its end is told to nobody
            hello = Hello(role="worker", name="0", pid=os.getpid(), start=START, cmds=["echo"])
            worker.send(hello)
            subprocess.run(late, env=ENVIRONMENT, check=True)
            manager.start()
            worker.expect(Welcome)
            manager.until_logged("was refused: process .* is no more")
            (found,) = manager.status()["workers"]
            assert found["children"] == []


def test_child_that_answers_what_it_was_not_asked_is_closed(tmp_path: Path) -> None:
    with managed(tmp_path) as manager, manager.child() as child:
        child.send(Result(99))
        assert child.expect(ErrorFrame).code == "protocol"
        assert child.closed()


def test_client_that_said_bye_gets_its_last_answer_then_the_end(tmp_path: Path) -> None:
    with managed(tmp_path) as manager, manager.child() as child, manager.client() as client:
        client.send(CallFrame(1, "echo"))
        run = child.expect(Run)
        client.send(Bye())
        client.send(CallFrame(2, "echo"))
        error = client.expect(ErrorFrame)
        assert (error.id, error.code) == (2, "closed")
        child.send(Result(run.id))
        assert client.expect(Result).id == 1
        assert client.closed()


def test_pipelined_hello_and_call_are_taken_together(tmp_path: Path) -> None:
    with managed(tmp_path) as manager, manager.child() as child, manager.dial() as client:
        client.raw(encode(Hello(role="client")) + encode(CallFrame(1, "echo")))
        client.expect(Welcome)
        assert child.expect(Run).id == 1


def test_stop_says_goaway_and_ends_when_calls_are_answered(tmp_path: Path) -> None:
    with managed(tmp_path) as manager, manager.child() as child, manager.client() as client:
        client.send(CallFrame(1, "echo"))
        client.send(CallFrame(2, "echo"))
        run = child.expect(Run)
        manager.process.terminate()
        client.expect(Goaway)
        waiting = client.expect(ErrorFrame)
        assert (waiting.id, waiting.code) == (2, "not_run")
        child.expect(Goaway)
        child.send(Result(run.id))
        assert client.expect(Result).id == 1
        assert client.closed()
        assert manager.process.wait(10) == 0
        assert manager.path.is_socket()  # it is not the manager's to remove
