"""Who calls: each behaves the same. The sync client stands behind threads to be called alike."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from tests.contract.pool.shop import app

from cordata.pool import Client, SyncClient
from cordata.testing import open_app


class InThreads:
    """A sync object whose methods are awaited."""

    def __init__(self, target: object) -> None:
        self._target = target

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._target, name)

        async def called(*arguments: Any, **named: Any) -> Any:
            return await asyncio.to_thread(method, *arguments, **named)

        return called


class Sync(InThreads):
    """The sync client, as the async one looks."""

    def __init__(self, client: SyncClient) -> None:
        super().__init__(client)
        self._client = client
        self.sessions = InThreads(client.sessions)
        self.globals = InThreads(client.globals)

    async def stream(self, *arguments: Any, **named: Any) -> AsyncGenerator[Any, None]:
        parts, done = self._client.stream(*arguments, **named), object()
        try:
            while (part := await asyncio.to_thread(next, parts, done)) is not done:
                yield part
        finally:
            await asyncio.to_thread(parts.close)


@asynccontextmanager
async def async_client(path: Path) -> AsyncIterator[Client]:
    async with Client(path, timeout=60.0) as client:
        yield client


@asynccontextmanager
async def sync_client(path: Path) -> AsyncIterator[Client]:
    with SyncClient(path, timeout=60.0) as client:
        yield cast(Client, Sync(client))


@asynccontextmanager
async def inline_pool(path: Path) -> AsyncIterator[Client]:
    """What tests of applications have."""
    async with open_app(app) as harness:
        yield harness.ctx.pool


CALLERS = {"async": async_client, "sync": sync_client, "inline": inline_pool}
