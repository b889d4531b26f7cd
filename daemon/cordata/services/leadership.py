"""Leadership: whether this process is the primary, and the Context whose writes check its term."""

from __future__ import annotations

import asyncio
import dataclasses
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar, cast

from cordata.context import Context, runtime_store
from cordata.store import Fence, RuntimeStore, Tx, Unit

T = TypeVar("T")

#: Notified when a lease is released, or a takeover requested.
LEASE_TOPIC = "lease"


class _FencedStore:
    def __init__(self, store: RuntimeStore, fence: Fence) -> None:
        self._store = store
        self._fence = fence

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def run(self, unit: Unit[T], *, batch: bool = False) -> T:
        return await self._store.run(unit, batch=batch, fence=self._fence)

    def transaction(self) -> AbstractAsyncContextManager[Tx]:
        return self._store.transaction(fence=self._fence)


def fenced(ctx: Context, fence: Fence) -> Context:
    """A copy of `ctx` whose writes raise LeaseLost once a newer term exists."""
    store = cast(RuntimeStore, _FencedStore(runtime_store(ctx), fence))
    return dataclasses.replace(ctx, store=store, term=fence.term)


class Leadership:
    """Whether this process leads; the primary's other services wait on it."""

    def __init__(self) -> None:
        self._begun = asyncio.Event()
        self._ctx: Context | None = None

    async def wait(self, stop: asyncio.Event) -> Context | None:
        """Wait until this process leads. Returns the fenced Context; None after `stop`."""
        async with asyncio.TaskGroup() as group:
            waiters = [group.create_task(event.wait()) for event in (self._begun, stop)]
            await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
            for waiter in waiters:
                waiter.cancel()
        return None if stop.is_set() else self._ctx

    @property
    def leads(self) -> bool:
        """Whether this process leads now."""
        return self._ctx is not None

    def begin(self, ctx: Context) -> None:
        """This process leads from now on; `ctx` is fenced with its term."""
        self._ctx = ctx
        self._begun.set()

    def end(self) -> None:
        """This process no longer leads."""
        self._ctx = None
