"""A store that is slow at first: in each task each kind of read takes too long once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, TypeVar

from cordata.errors import ReadTimeout
from cordata.store import Chain, MigrationId, Store, Unit

T = TypeVar("T")


class SlowAtFirst:
    """A Store, to be cast to one."""

    def __init__(self, store: Store) -> None:
        self._store = store
        #: Names of the reads that were stopped; `Class.method` for a unit inside a method.
        self.stopped: set[str] = set()
        self._known: set[object] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def read(self, unit: Unit[T]) -> T:
        """As in Store. Raises: ReadTimeout, when a task first comes with a unit of this code."""
        self._stop(unit.__code__, unit.__qualname__.split(".<locals>")[0])
        return await self._store.read(unit)

    async def pending(self, chains: Sequence[Chain]) -> list[MigrationId]:
        """As in Store, where it is a read."""
        self._stop("pending", "pending")
        return await self._store.pending(chains)

    def _stop(self, key: object, name: str) -> None:
        of_task = (asyncio.current_task(), key)
        if of_task not in self._known:
            self._known.add(of_task)
            self.stopped.add(name)
            raise ReadTimeout("a read took longer than 30 s")
