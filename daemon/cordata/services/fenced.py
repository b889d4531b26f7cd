"""The store as the primary's code sees it: every write carries the primary's term."""

from __future__ import annotations

import dataclasses
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar, cast

from cordata.context import Context, runtime_store
from cordata.store import Fence, RuntimeStore, Tx, Unit

T = TypeVar("T")


class _FencedStore:
    def __init__(self, store: RuntimeStore, fence: Fence) -> None:
        self._store = store
        self._fence = fence

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def run(
        self,
        unit: Unit[T],
        *,
        batch: bool = False,
        fence: Fence | None = None,
    ) -> T:
        return await self._store.run(unit, batch=batch, fence=fence or self._fence)

    def transaction(self, *, fence: Fence | None = None) -> AbstractAsyncContextManager[Tx]:
        return self._store.transaction(fence=fence or self._fence)


def fenced(ctx: Context, fence: Fence) -> Context:
    """The same Context, whose writes raise LeaseLost once a newer term exists."""
    store = cast(RuntimeStore, _FencedStore(runtime_store(ctx), fence))
    return dataclasses.replace(ctx, store=store, term=fence.term)
