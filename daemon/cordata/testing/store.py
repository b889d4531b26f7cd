"""The store of a test: uses the test's clock, and rejects batched units that no batch can run.

On PostgreSQL, a batched unit that does not first read and then write runs in a transaction of its
own, more slowly; on SQLite this is not visible. So in a test it is an error on both.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, TypeVar

from cordata.clock import from_us, to_us
from cordata.store import Fence, Row, RuntimeStore, Tx, Unit, UnitMisuse

T = TypeVar("T")


class Clock:
    """The test's clock; it only goes forward, like the store's."""

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

    A wrapper, so that the store itself is the same as in a worker.
    """

    def __init__(self, store: RuntimeStore, clock: Clock) -> None:
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
    ) -> T:
        """As in Store; a batched unit that does what no batch can do raises UnitMisuse."""
        unit = self._timed(batchable(unit) if batch else unit)
        return await self._store.run(unit, batch=batch, fence=fence)

    async def read(self, unit: Unit[T]) -> T:
        """As in Store."""
        return await self._store.read(self._timed(unit))

    @asynccontextmanager
    async def transaction(self, *, fence: Fence | None = None) -> AsyncIterator[Tx]:
        """As in Store."""
        async with self._store.transaction(fence=fence) as tx:
            tx.now_us = self._clock.now_us()
            yield tx

    def _timed(self, unit: Unit[T]) -> Unit[T]:
        @functools.wraps(unit)
        async def timed(tx: Tx) -> T:
            tx.now_us = self._clock.now_us()
            return await unit(tx)

        return timed


def batchable(unit: Unit[T]) -> Unit[T]:
    """The same unit; it raises UnitMisuse at the first call that a batch does not allow."""

    @functools.wraps(unit)
    async def checked(tx: Tx) -> T:
        return await unit(_BatchedTx(tx))

    return checked


class _BatchedTx(Tx):
    """The Tx of a batched unit."""

    __slots__ = ("_tx", "_wrote")

    def __init__(self, tx: Tx) -> None:
        super().__init__(tx.now_us)
        self.topics = tx.topics
        self._tx = tx
        #: Name of the first statement that wrote; "" before it.
        self._wrote = ""

    async def execute(self, name: str, /, **params: object) -> int:
        raise _misuse(f"execute({name!r}) waits for a result", "use write(), with rows= if needed")

    async def write(self, name: str, /, *, rows: Any = None, **params: object) -> None:
        self._wrote = self._wrote or name
        await self._tx.write(name, rows=rows, **params)

    async def insert(self, table: str, /, **columns: object) -> None:
        self._wrote = self._wrote or f"insert into {table}"
        await self._tx.insert(table, **columns)

    async def fetch_all(self, name: str, /, *, lock: Any = False, **params: object) -> list[Row]:
        if self._wrote:
            raise _misuse(f"{name!r} reads after {self._wrote!r} wrote", "read first")
        if lock:
            raise _misuse(f"{name!r} locks rows", "decide by a constraint or by rows=")
        return await self._tx.fetch_all(name, **params)


def _misuse(what: str, hint: str) -> UnitMisuse:
    return UnitMisuse(f"in a unit that is run with batch=True, {what}", hint=hint)
