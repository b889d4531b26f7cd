"""A child as a worker starts it, with the test in the place of its worker and of its manager."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Raw, msgpack
from tests.integration.pool.peer import Listening, Peer

from cordata.core.pool.message import ErrorFrame, Result
from cordata.core.pool.order import Ready, Run, Up
from cordata.core.pool.page import Hand, read
from cordata.core.pool.spec import ChildSpec
from cordata.pool.worker.spawning import spawn

COMMANDS = "tests.integration.pool.child.commands"
ROOT = Path(__file__).resolve().parents[4]
PATH = (str(ROOT), str(ROOT / "daemon"), *sys.path)
NAMES = (
    *("echo", "about", "about_async", "fail", "fail_async", "odd", "large", "numbers"),
    *("numbers_async", "endless", "modules", "remember", "wait", "wait_async", "hang", "speak"),
    *("leave_a_thread", "speak_raw", "die", "start_another", "grow", "leak", "leak_async"),
)


def spec_of(path: Path, **fields: Any) -> ChildSpec:
    fields.setdefault("commands", {name: f"{COMMANDS}:{name}" for name in NAMES})
    fields.setdefault("max_frame_bytes", 100_000)
    fields.setdefault("worker", "0")
    return ChildSpec(socket=str(path), path=PATH, **fields)


class Born:
    """One child; `channel` is its worker's end of the second channel."""

    def __init__(self, spec: ChildSpec) -> None:
        self.spawned = spawn(spec)
        self.pid = self.spawned.pid
        self.channel = Peer(self.spawned.channel)
        self._written = b""

    @property
    def hand(self) -> Hand:
        return read(memoryview(self.spawned.page))

    def idle(self) -> Hand:
        """Its page, once it has nothing in hand: the answer goes out before."""
        while self.hand.busy:
            time.sleep(0.002)
        return self.hand

    def exited(self, timeout_s: float = 10.0) -> int:
        """Its exit status, negative for a signal."""
        assert select.select([self.spawned.pidfd], [], [], timeout_s)[0], "it lives"
        status = os.waitid(os.P_PIDFD, self.spawned.pidfd, os.WEXITED | os.WNOWAIT)
        assert status is not None
        return status.si_status if status.si_code == os.CLD_EXITED else -status.si_status

    def written(self, until: str, timeout_s: float = 5.0) -> str:
        """What it wrote, once `until` is in it."""
        end = time.monotonic() + timeout_s
        while until.encode() not in self._written:
            assert select.select([self.spawned.output], [], [], end - time.monotonic())[0]
            self._written += os.read(self.spawned.output, 65536)
        return self._written.decode()

    def drained(self) -> str:
        """All that it wrote, once it is dead."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.exited()
        while data := os.read(self.spawned.output, 65536):
            self._written += data
        return self._written.decode()

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.spawned.close()


@contextmanager
def born(manager: Listening, **fields: Any) -> Iterator[Born]:
    child = Born(spec_of(manager.path, **fields))
    try:
        yield child
    finally:
        child.close()


@contextmanager
def serving(path: Path, **fields: Any) -> Iterator[tuple[Born, Peer]]:
    """A child that is ready, and the manager's end of its connection."""
    with Listening(path / "pool.sock") as manager, born(manager, **fields) as child:
        peer, hello = manager.welcome()
        assert (hello.role, hello.name, hello.pid) == ("child", "0", child.pid)
        child.channel.expect(Up)
        peer.expect(Ready)
        with peer:
            yield child, peer


def order(command: str, payload: Any = None, *, id: int = 1, d: float = 10.0, **fields: Any) -> Run:
    fields.setdefault("n", id + 100)
    return Run(id=id, command=command, payload=Raw(msgpack.encode(payload)), d=d, **fields)


def call(peer: Peer, command: str, payload: Any = None, **fields: Any) -> Any:
    """Run a command and give its value."""
    return value(result(peer, command, payload, **fields))


def result(peer: Peer, command: str, payload: Any = None, **fields: Any) -> Result:
    peer.send(order(command, payload, **fields))
    return peer.expect(Result)


def value(answer: Result) -> Any:
    return msgpack.decode(answer.payload)


def failure(peer: Peer, command: str, payload: Any = None, **fields: Any) -> ErrorFrame:
    peer.send(order(command, payload, **fields))
    return peer.expect(ErrorFrame)
