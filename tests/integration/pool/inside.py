"""A manager in the test's own loop, with limits that its configuration does not have."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from tests.integration.pool.managing import START
from tests.integration.pool.peer import Peer

from cordata.core.pool.limits import PoolLimits, Rules
from cordata.core.pool.message import Hello, Message, Welcome
from cordata.core.pool.shelf import SessionLimits
from cordata.pool.server.hub import Hub, ServerLimits
from cordata.pool.server.server import PoolServer

M = TypeVar("M", bound=Message)
PID = os.getpid()


class Inside:
    """The manager; `hub` shows what it holds. Peers are blocking: what waits runs in a thread."""

    def __init__(self, server: PoolServer, path: Path) -> None:
        self.server, self.path = server, path
        self.peers: list[Peer] = []

    @property
    def hub(self) -> Hub:
        return self.server.hub

    async def dial(self, role: str = "client", name: str = "", **fields: Any) -> Peer:
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(str(self.path))
        peer = Peer(sock)
        self.peers.append(peer)
        if role in ("worker", "child"):
            fields = {"name": name or "0", "pid": PID, "start": START, "cmds": ["echo"], **fields}
        peer.send(Hello(role=role, **fields))  # type: ignore[arg-type]
        await self.expect(peer, Welcome)
        return peer

    async def expect(self, peer: Peer, kind: type[M], timeout_s: float = 10.0) -> M:
        return await asyncio.to_thread(peer.expect, kind, timeout_s)

    async def until(self, true: Callable[[], Any], timeout_s: float = 10.0) -> Any:
        async with asyncio.timeout(timeout_s):
            while not (found := true()):  # noqa: ASYNC110 - what it looks at has no event
                await asyncio.sleep(0.01)
        return found

    async def answered(self, count: int) -> None:
        """So many results have come from children."""
        await self.until(lambda: self.hub.counting.results >= count)

    async def send(self, peer: Peer, message: Message) -> None:
        """What may be too much to be taken at once: the manager reads in this loop."""
        await asyncio.to_thread(peer.send, message)

    async def raw(self, peer: Peer, data: bytes) -> None:
        """See send."""
        await asyncio.to_thread(peer.raw, data)


@asynccontextmanager
async def inside(directory: Path, **limits: Any) -> AsyncIterator[Inside]:
    sock = socket.socket(socket.AF_UNIX)
    path = directory / "pool.sock"
    sock.bind(str(path))
    sock.listen(128)
    sock.setblocking(False)
    fields = {
        "pools": {"default": PoolLimits()},
        "rules": Rules(),
        "sessions": SessionLimits(),
        "max_frame_bytes": 1_000_000,
        **limits,
    }
    server = PoolServer(
        ServerLimits(**fields), sockets=[sock], directory=directory / "state", stop_timeout_s=3.0
    )
    stop, ready = asyncio.Event(), asyncio.Event()
    here = Inside(server, path)
    with sock:
        async with asyncio.TaskGroup() as group:
            group.create_task(server.run(stop, ready=ready, tick=lambda: None))
            await ready.wait()
            try:
                yield here
            finally:
                for peer in here.peers:
                    peer.close()
                stop.set()
