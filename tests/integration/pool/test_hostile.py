"""Whoever may open the socket, and means no good: the manager stays up, small and quiet."""

from __future__ import annotations

import random
import re
import socket
import struct
import subprocess
import sys
import time
from itertools import product
from pathlib import Path

from msgspec import Raw, msgpack
from tests.integration.pool.inside import inside
from tests.integration.pool.managing import ENVIRONMENT, Manager, managed
from tests.integration.pool.test_manager_limits import pss_bytes
from tests.unit.pool.test_corpus import FILES

from cordata.core.frame import pack
from cordata.core.pool.codec import encode
from cordata.core.pool.message import (
    CallFrame,
    ErrorFrame,
    Hello,
    Ping,
    Pong,
    Reply,
    Result,
    SessionOp,
)
from cordata.core.pool.order import Run

MEGABYTE = 1 << 20


def throw(manager: Manager, data: bytes, *, hello: bool) -> None:
    """Send it as somebody who does not care for answers."""
    with manager.dial() as peer:
        if hello:
            peer.hello("client")
        try:
            peer.raw(data)
        except OSError:
            pass  # it was thrown out meanwhile


def answers(manager: Manager) -> float:
    """Seconds that a call of somebody else takes."""
    began = time.monotonic()
    with manager.client() as client:
        client.send(Ping(1))
        assert client.expect(Pong).id == 1
    return time.monotonic() - began


def test_corpus_and_noise_harm_nobody(tmp_path: Path) -> None:
    chance = random.Random(7)
    whole = [path.read_bytes() for path in FILES]
    # What the corpus calls is not there: else it would run, as it should.
    mine = ("mine",)
    with (
        managed(tmp_path) as manager,
        manager.child(cmds=mine) as child,
        manager.client() as client,
    ):
        before = pss_bytes(manager.process.pid)
        for data in whole:
            for hello in (True, False):
                throw(manager, data, hello=hello)
        for _ in range(300):
            damaged = bytearray(chance.choice(whole))
            for _ in range(chance.randrange(1, 5)):
                damaged[chance.randrange(len(damaged))] = chance.randrange(256)
            cut = damaged[: chance.randrange(1, len(damaged) + 1)]
            throw(manager, bytes(cut), hello=chance.random() < 0.7)
            throw(manager, chance.randbytes(chance.randrange(1, 2000)), hello=chance.random() < 0.3)
        client.send(CallFrame(1, "mine"))
        run = child.expect(Run)
        child.send(Result(run.id))
        assert client.expect(Result).id == 1
        assert manager.process.poll() is None
        manager.until(lambda found: found["connections"]["open"] == 3, "they are all gone")
        assert pss_bytes(manager.process.pid) - before < 40 * MEGABYTE
        assert "Traceback" not in manager.log and "ERROR" not in manager.log
        assert len(manager.lines) < 20, manager.log


def test_lengths_that_never_come_true_cost_nothing(tmp_path: Path) -> None:
    with managed(tmp_path) as manager:
        before = pss_bytes(manager.process.pid)
        peers = [manager.client() for _ in range(200)]
        for peer in peers:
            peer.raw(struct.pack(">I", 16 * MEGABYTE) + b"\x82\xa1t")
        assert answers(manager) < 2.0
        assert pss_bytes(manager.process.pid) - before < 40 * MEGABYTE
        for peer in peers:
            peer.close()


def peak_bytes(manager: Manager) -> int:
    """The most memory that it ever had."""
    text = Path(f"/proc/{manager.process.pid}/status").read_text()
    found = re.search(r"^VmHWM:\s+(\d+) kB", text, re.M)
    assert found is not None
    return int(found[1]) * 1024


def test_frame_of_millions_of_names_is_refused_before_they_are_made(tmp_path: Path) -> None:
    letters = [bytes([0xA4]) + bytes(k) + b"\x01" for k in product(range(97, 123), repeat=4)]
    names = b"".join(letters)[: 6 * 450_000]
    bombs = {
        "create": b"\x84\xa1t\xa7session\xa2id\x01\xa2op\xa6create\xa3set\xdf"
        + struct.pack(">I", 450_000)
        + names,
        "get": b"\x84\xa1t\xa6global\xa2id\x01\xa2op\xa3get\xa4keys\xdd"
        + struct.pack(">I", 16_000_000)
        + b"\xa0" * 16_000_000,
    }
    with managed(tmp_path) as manager, manager.client() as client:
        answers(manager)
        before = peak_bytes(manager)
        for bomb in bombs.values():
            client.socket.settimeout(30)
            client.raw(pack(bomb))
            error = client.expect(ErrorFrame, 30)
            assert (error.id, error.code) == (1, "protocol")
        assert peak_bytes(manager) - before < 50 * MEGABYTE  # of which 32 are the frame


def test_small_questions_with_large_answers_are_answered_as_they_are_read(tmp_path: Path) -> None:
    value = Raw(msgpack.encode(bytes(MEGABYTE - 1000)))
    get = encode(SessionOp(2, "get", "s"))
    with managed(tmp_path) as manager, manager.client() as client:
        client.send(SessionOp(1, "create", "s", set={"v": value}))
        client.expect(Reply)
        before = peak_bytes(manager)
        deaf = [manager.client() for _ in range(100)]
        deaf[0].raw(get * 600)
        answers(manager)
        assert peak_bytes(manager) - before < 50 * MEGABYTE
        for peer in deaf[1:]:
            peer.raw(get * 8)
        answers(manager)
        assert peak_bytes(manager) - before < 400 * MEGABYTE
        for peer in deaf:
            peer.close()
        # Who reads gets all of it, in order, however much was asked at once.
        counting = b"".join(
            encode(SessionOp(n, "count", "s", by={"n": 1})) + get for n in range(60)
        )
        client.socket.settimeout(30)
        client.raw(counting)
        for number in range(60):
            counted, found = client.expect(Reply, 30), client.expect(Reply, 30)
            assert (counted.id, counted.cnt) == (number, {"n": number + 1})
            assert found.cnt == counted.cnt and found.set == {"v": value}
        # Also garbage, and the end, are met where they stand.
        client.raw(get * 40 + pack(b"\xc1") + get)
        for _ in range(40):
            client.expect(Reply, 30)
        assert client.expect(ErrorFrame, 30).code == "protocol"
        assert client.closed(30)


async def test_half_frames_are_bounded_together_and_the_oldest_goes(tmp_path: Path) -> None:
    async with inside(tmp_path) as here:  # frames of a megabyte; 16 of them may be under way
        half = struct.pack(">I", 1_000_000) + b"\x82" + b"x" * 899_000
        peers = [await here.dial() for _ in range(25)]
        child = await here.dial("child", warm=True)
        for peer in peers[:17]:
            await here.raw(peer, half)
        await here.until(lambda: here.hub.partial_bytes > 15_000_000)
        for peer in peers[17:]:
            await here.raw(peer, half)
        await here.until(lambda: here.hub.counting.refused["saturated"] == 8)
        assert here.hub.partial_bytes <= 16_000_000
        assert (await here.expect(peers[0], ErrorFrame)).code == "saturated"
        # One who sends whole frames, however large, is none of these; nor is a child.
        honest = await here.dial()
        large = Raw(msgpack.encode(b"y" * 990_000))
        for number in range(1, 6):
            await here.send(honest, CallFrame(number, "echo", large))
            run = await here.expect(child, Run)
            await here.send(child, Result(run.id, large))
            assert (await here.expect(honest, Result)).id == number
        for peer in peers:
            peer.close()
        await here.until(lambda: not here.hub.partial_bytes)


def test_clients_do_not_keep_workers_children_and_operators_out(tmp_path: Path) -> None:
    with managed(tmp_path, "[pool]\nmax_connections = 50\n") as manager:
        crowd = [manager.client() for _ in range(50)]
        with manager.dial() as more:
            more.send(Hello(role="client"))
            assert more.expect(ErrorFrame).code == "saturated"
            assert more.closed()
        with manager.worker(), manager.child() as child:
            crowd[0].send(CallFrame(1, "echo"))
            child.send(Result(child.expect(Run).id))
            crowd[0].expect(Result)
            assert manager.status()["connections"]["refused"] == {"saturated": 1}
        for peer in crowd:
            peer.close()


def test_thousands_of_connections_are_told_to_go_and_nobody_else_notices(tmp_path: Path) -> None:
    with managed(tmp_path, "[pool]\nmax_connections = 300\n") as manager:
        with manager.client() as client:
            for _ in range(3000):
                sock = socket.socket(socket.AF_UNIX)
                sock.setblocking(False)
                try:
                    sock.connect(str(manager.path))
                except BlockingIOError:
                    time.sleep(0.005)  # its backlog is full, which is their own
                sock.close()
            client.send(Ping(1))
            assert client.expect(Pong).id == 1
        manager.until(lambda found: found["connections"]["open"] == 1, "they are all gone")
        assert len(manager.lines) < 5, manager.log


_LIAR = """
import os, sys
from pathlib import Path
from tests.integration.pool.peer import dialled
from cordata.core.pool.message import ErrorFrame, Hello

path = Path(sys.argv[1])
for _ in range(60):
    pid = os.fork()
    if pid == 0:
        for role in ("client", "worker", "child", "operator"):
            with dialled(path) as peer:
                peer.send(Hello(role=role, name="0", pid=1, start=1))
                assert peer.expect(ErrorFrame).code == "protocol"
                assert peer.closed()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
"""


def test_wrong_pids_are_refused_and_do_not_flood_the_log(tmp_path: Path) -> None:
    with managed(tmp_path) as manager:
        argv = [sys.executable, "-c", _LIAR, str(manager.path)]
        subprocess.run(argv, env=ENVIRONMENT, check=True)
        assert manager.status()["connections"]["refused"] == {"protocol": 240}
        assert manager.status()["workers"] == []
        assert manager.log.count("was refused") == 20
