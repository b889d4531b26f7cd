"""What sockets and wake-ups alone cost: frames of a call's size through a relay, or straight.

    python -m tests.bench.pool_relay relay PATH      hands each frame to a child that is free
    python -m tests.bench.pool_relay child PATH      answers the relay's frames, or a client's

No queue but a deque, no deadline, no registry, nothing decoded: the limit of who has those.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import uvloop
from tests.bench.pool_work import PROCESSES, Figures, spin
from tests.bench.servers import stop
from tests.servers.reaper import watched

#: A call of 100 bytes on the wire, and its answer: 4 bytes of length, 8 of the id, the rest.
CALL, ANSWER = 151, 119
_ID = slice(4, 12)


class Line(asyncio.Protocol):
    """Frames of one connection; what a turn has to send leaves in one write."""

    def __init__(
        self,
        size: int,
        heard: Callable[[Line, bytes], None],
        made: Callable[[Line], None] = lambda line: None,
    ) -> None:
        self._size, self._heard, self._made = size, heard, made
        self._held = b""
        self._out: list[bytes] = []
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance
        self._made(self)

    def data_received(self, data: bytes) -> None:
        data = self._held + data if self._held else data
        at = 0
        while len(data) - at >= self._size:
            self._heard(self, data[at : at + self._size])
            at += self._size
        self._held = data[at:]

    def send(self, frame: bytes) -> None:
        if not self._out:
            asyncio.get_running_loop().call_soon(self._flush)
        self._out.append(frame)

    def _flush(self) -> None:
        assert self.transport is not None
        self.transport.write(b"".join(self._out))
        self._out.clear()


class Relay:
    """Each child has one frame at a time; the first that waits gets the child that is free."""

    def __init__(self) -> None:
        self._free: list[Line] = []
        self._waiting: deque[tuple[Line, bytes]] = deque()
        self._callers: dict[Line, Line] = {}

    def child(self) -> Line:
        return Line(ANSWER, self._answered, self._next)

    def client(self) -> Line:
        return Line(CALL, self._asked)

    def _asked(self, client: Line, frame: bytes) -> None:
        if self._free:
            self._hand(self._free.pop(), client, frame)
        else:
            self._waiting.append((client, frame))

    def _answered(self, child: Line, frame: bytes) -> None:
        client = self._callers.pop(child)
        self._next(child)
        client.send(frame)

    def _next(self, child: Line) -> None:
        if self._waiting:
            self._hand(child, *self._waiting.popleft())
        else:
            self._free.append(child)

    def _hand(self, child: Line, client: Line, frame: bytes) -> None:
        self._callers[child] = client
        child.send(frame)

    async def run(self, path: str) -> None:
        loop = asyncio.get_running_loop()
        children = await loop.create_unix_server(self.child, path + ".child")
        async with children, await loop.create_unix_server(self.client, path) as clients:
            await clients.serve_forever()


def child(path: str) -> None:
    """Answers for ever: whom it dials when somebody listens there, else who dials it."""
    if os.path.exists(path):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(path)
            _answer(sock)
        return
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path + ".new")
        listener.listen(1)
        os.rename(path + ".new", path)
        while True:
            with listener.accept()[0] as sock:
                _answer(sock)


def _answer(sock: socket.socket) -> None:
    held = b""
    while data := sock.recv(1 << 16):
        held += data
        while len(held) >= CALL:
            frame, held = held[:CALL], held[CALL:]
            if frame[-1]:
                spin(None)
            sock.sendall(frame[:ANSWER])


@contextmanager
def two_hops() -> Iterator[list[str]]:
    """A relay and its children; where a client dials."""
    with _processes() as (directory, start):
        path = f"{directory}/relay"
        start("relay", path)
        _wait_for(path)
        for _ in range(PROCESSES):
            start("child", path + ".child")
        yield [path]


@contextmanager
def one_hop() -> Iterator[list[str]]:
    """Children that a client dials itself."""
    with _processes() as (directory, start):
        paths = [f"{directory}/{n}" for n in range(PROCESSES)]
        for path in paths:
            start("child", path)
        for path in paths:
            _wait_for(path)
        yield paths


@contextmanager
def _processes() -> Iterator[tuple[str, Callable[..., None]]]:
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str) -> None:
        command = [sys.executable, "-m", "tests.bench.pool_relay", *arguments]
        started.append(watched(subprocess.Popen(command)))

    with tempfile.TemporaryDirectory(prefix="cordata-relay-") as directory:
        try:
            yield directory, start
        finally:
            for process in started:
                stop(process)


def _wait_for(path: str) -> None:
    while not Path(path).exists():
        time.sleep(0.01)


async def measure(paths: list[str], name: str, *, outstanding: int, seconds: float) -> Figures:
    """Keep so many frames under way for so long. Of several paths each has one at a time."""
    loop = asyncio.get_running_loop()
    figures, count = Figures(), 0
    sent: dict[bytes, float] = {}
    waiting: deque[bytes] = deque()
    free: list[Line] = []
    finished = asyncio.Event()

    def heard(line: Line, frame: bytes) -> None:
        now = time.perf_counter()
        figures.latencies.append(now - sent.pop(frame[_ID]))
        free.append(line)
        if now < end:
            ask()
        elif waiting:
            free.pop().send(waiting.popleft())
        elif not sent:
            finished.set()

    def ask() -> None:
        nonlocal count
        count += 1
        number = count.to_bytes(8, "big")
        sent[number] = time.perf_counter()
        waiting.append(b"\0\0\0\x93" + number + b"x" * (CALL - 13) + bytes([name == "spin"]))
        if free:
            free.pop().send(waiting.popleft())

    lines = []
    for path in paths:
        _, line = await loop.create_unix_connection(lambda: Line(ANSWER, heard), path)
        lines.append(line)
    # To a relay everything goes at once: it has the queue.
    free += lines if len(lines) > 1 else lines * outstanding
    with figures.measured():
        end = time.perf_counter() + seconds
        for _ in range(outstanding):
            ask()
        await finished.wait()
    for line in lines:
        assert line.transport is not None
        line.transport.close()
    return figures


if __name__ == "__main__":
    role, where = sys.argv[1:]
    if role == "relay":
        uvloop.run(Relay().run(where))
    else:
        child(where)
