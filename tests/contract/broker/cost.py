"""What a store's statements look at: a count that no other process and no slow machine changes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from tests.raw import raw

from cordata.store import Store, Tx
from cordata.store.sqlite import reader
from cordata.store.sqlite.store import SqliteStore
from cordata.store.sqlite.tx import SqliteTx

T = TypeVar("T")
#: The rows and entries of indexes that scans have come by, in this transaction and in those of the
#: session before it that it has not reported yet.
_ROWS = (
    "SELECT sum(pg_stat_get_xact_tuples_returned(oid))::bigint AS count FROM pg_class"
    " WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'i')"
)


@dataclass(slots=True)
class Cost:
    """On PostgreSQL rows and entries of indexes, on SQLite steps of its virtual machine."""

    count: int = 0

    def step(self) -> int:
        """A progress handler."""
        self.count += 1
        return 0


@contextmanager
def counted(store: Store) -> Iterator[Cost]:
    """The cost of the units and reads of the block, which follow each other."""
    cost = Cost()
    ways: dict[str, Callable[..., Any]] = {name: getattr(store, name) for name in ("run", "read")}
    looked_at = _steps if isinstance(store, SqliteStore) else _rows
    patched: Any = store
    for name, way in ways.items():

        async def through(
            unit: Callable[[Tx], Awaitable[T]], way: Callable[..., Any] = way, **more: Any
        ) -> T:
            async def noted(tx: Tx) -> T:
                return await looked_at(store, tx, unit, cost)

            found: T = await way(noted, **more)
            return found

        setattr(patched, name, through)
    try:
        yield cost
    finally:
        for name in ways:
            delattr(patched, name)


async def _rows(store: Store, tx: Tx, unit: Callable[[Tx], Awaitable[T]], cost: Cost) -> T:
    (before,) = await raw(tx, _ROWS)
    found = await unit(tx)
    (after,) = await raw(tx, _ROWS)
    cost.count += after["count"] - before["count"]
    return found


async def _steps(store: Store, tx: Tx, unit: Callable[[Tx], Awaitable[T]], cost: Cost) -> T:
    assert isinstance(store, SqliteStore) and isinstance(tx, SqliteTx)
    connection, snapshots = tx._cursor.connection, store._reader._inline
    connection.set_progress_handler(cost.step, 1)
    try:
        return await unit(tx)
    finally:
        if connection is snapshots._connection:
            connection.set_progress_handler(snapshots._look, reader._STEPS)
        else:
            connection.set_progress_handler(None, 0)
