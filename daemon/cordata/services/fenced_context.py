"""The Context of the primary: its writes check the term of the lease."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar, cast

from msgspec.structs import replace

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
    return replace(ctx, store=store, term=fence.term)
