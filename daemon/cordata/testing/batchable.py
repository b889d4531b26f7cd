"""Checks in tests that a batched unit keeps to what a batch can do: read first, then write.

On PostgreSQL a unit that does not keep to it runs in a transaction of its own, more slowly; on
SQLite nobody would notice. So in a test it is an error on both.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from cordata.store import Row, Tx, Unit, UnitMisuse

T = TypeVar("T")


def batchable(unit: Unit[T]) -> Unit[T]:
    """The same unit; it raises UnitMisuse at the first call that no batch can make."""

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
        #: The first statement that it wrote.
        self._wrote = ""

    async def execute(self, name: str, /, **params: object) -> int:
        raise _misuse(f"execute({name!r}) waits for a result", "use write(), with rows= if needed")

    async def execute_many(self, name: str, rows: Sequence[Mapping[str, object]], /) -> int:
        raise _misuse(f"execute_many({name!r}) waits for a result", "use write() in a loop")

    async def write(self, name: str, /, *, rows: Any = None, **params: object) -> None:
        self._wrote = self._wrote or name
        await self._tx.write(name, rows=rows, **params)

    async def insert(self, table: str, /, **columns: object) -> None:
        self._wrote = self._wrote or f"insert into {table}"
        await self._tx.insert(table, **columns)

    async def fetch_one(self, name: str, /, *, lock: Any = False, **params: object) -> Row | None:
        self._check_read(name, lock)
        return await self._tx.fetch_one(name, **params)

    async def fetch_all(self, name: str, /, *, lock: Any = False, **params: object) -> list[Row]:
        self._check_read(name, lock)
        return await self._tx.fetch_all(name, **params)

    def _check_read(self, name: str, lock: bool) -> None:
        if self._wrote:
            raise _misuse(f"{name!r} reads after {self._wrote!r} wrote", "read first")
        if lock:
            raise _misuse(f"{name!r} locks rows", "decide by a constraint or by rows=")


def _misuse(what: str, hint: str) -> UnitMisuse:
    return UnitMisuse(f"in a unit that is run with batch=True, {what}", hint=hint)
