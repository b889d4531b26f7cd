"""A keeper in the test's loop, with a scripted manager whose blocking reads run in a thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from tests.integration.pool.child.born import spec_of
from tests.integration.pool.peer import Listening, Peer

from cordata.config.pool import PoolConfig
from cordata.core.pool.message import Hello, Message, Result
from cordata.core.pool.order import ChildEvent, Ready, Run
from cordata.pool.worker.keeper import Keeper

M = TypeVar("M", bound=Message)


def config_of(**fields: Any) -> PoolConfig:
    fields = {"restart_min_s": 0.01, "restart_max_s": 0.05, "kill_grace_s": 0.3, **fields}
    return PoolConfig(**fields)


@asynccontextmanager
async def keeping(
    path: Path, *, spec: dict[str, Any] | None = None, **config: Any
) -> AsyncIterator[Keeper]:
    keeper, stop = Keeper(spec_of(path, **(spec or {})), config_of(**config)), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(keeper.run(stop))
        try:
            yield keeper
        finally:
            stop.set()


class Manager:
    """Takes connections by role, one after the other."""

    def __init__(self, path: Path) -> None:
        self.listening = Listening(path)
        self._met: list[tuple[Peer, Hello]] = []
        self.peers: list[Peer] = []

    async def meet(self, role: str, timeout_s: float = 10.0) -> tuple[Peer, Hello]:
        """The next one of this role."""
        while True:
            for found in self._met:
                if found[1].role == role:
                    self._met.remove(found)
                    return found
            found = await asyncio.to_thread(self.listening.welcome, timeout_s)
            self.peers.append(found[0])
            self._met.append(found)

    async def worker(self) -> Peer:
        peer, hello = await self.meet("worker")
        assert hello.name == "0"
        return peer

    async def child(self) -> tuple[Peer, Hello]:
        """The next child, ready."""
        peer, hello = await self.meet("child")
        if not hello.warm:
            await expect(peer, Ready)
        return peer, hello

    def close(self) -> None:
        for peer in self.peers:
            peer.close()
        self.listening.close()


@asynccontextmanager
async def managing(path: Path) -> AsyncIterator[Manager]:
    manager = Manager(path / "pool.sock")
    try:
        yield manager
    finally:
        manager.close()


async def expect(peer: Peer, kind: type[M], timeout_s: float = 10.0) -> M:
    return await asyncio.to_thread(peer.expect, kind, timeout_s)


async def heard(peer: Peer, ev: str, timeout_s: float = 10.0) -> ChildEvent:
    """The worker's next event, which must be this one."""
    event = await expect(peer, ChildEvent, timeout_s)
    assert event.ev == ev, event
    return event


async def answered(peer: Peer, run: Run) -> Result:
    peer.send(run)
    return await expect(peer, Result)


async def until(true: Callable[[], bool], timeout_s: float = 10.0) -> float:
    """Wait for it; the seconds that it took."""
    began = time.monotonic()
    while not true():
        assert time.monotonic() < began + timeout_s, "it did not come true"
        await asyncio.sleep(0.005)
    return time.monotonic() - began


def alive(pid: int) -> bool:
    """Whether the process runs; one that only waits to be reaped does not."""
    with suppress(OSError):
        stat = Path(f"/proc/{pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] not in "ZX"
    return False
