"""The time of a test: it stands still until it is moved, and the store goes by it."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, TypeVar

from cordata.clock import from_us, to_us
from cordata.store import Bookkeeping, Fence, Store, Tx, Unit
from cordata.testing.batchable import batchable

T = TypeVar("T")


class Clock:
    """Goes forward only, as the fleet's does."""

    def __init__(self, now: datetime) -> None:
        self._us = to_us(now)

    @property
    def now(self) -> datetime:
        """Aware, UTC."""
        return from_us(self._us)

    def now_us(self) -> int:
        """Microseconds since the epoch."""
        return self._us

    def move_to(self, us: int) -> None:
        """Raises: ValueError when that is in the past."""
        if us < self._us:
            raise ValueError(f"time does not go back: it is {self.now}, not {from_us(us)}")
        self._us = us


class TimedStore:
    """A Store whose units, reads and transactions see the time of a Clock.

    Wrapped around, not built in: the store below is the very one of a worker.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def now_us(self) -> int:
        """As in Store."""
        return self._clock.now_us()

    async def run(
        self,
        unit: Unit[T],
        *,
        batch: bool = False,
        fence: Fence | None = None,
        bookkeeping: Bookkeeping | None = None,
    ) -> T:
        """As in Store; a batched unit that does what no batch can do raises UnitMisuse."""
        unit = self._timed(batchable(unit) if batch else unit)
        return await self._store.run(unit, batch=batch, fence=fence, bookkeeping=bookkeeping)

    async def read(self, unit: Unit[T]) -> T:
        """As in Store."""
        return await self._store.read(self._timed(unit))

    @asynccontextmanager
    async def transaction(
        self, *, seen: tuple[str, str] | None = None, fence: Fence | None = None
    ) -> AsyncIterator[Tx]:
        """As in Store."""
        async with self._store.transaction(seen=seen, fence=fence) as tx:
            tx.now_us = self._clock.now_us()
            yield tx

    def _timed(self, unit: Unit[T]) -> Unit[T]:
        @functools.wraps(unit)
        async def timed(tx: Tx) -> T:
            tx.now_us = self._clock.now_us()
            return await unit(tx)

        return timed
