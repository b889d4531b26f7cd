"""SQL that a test writes itself, past the named statements: it looks at tables as it likes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from tests.waiting import until_async

from cordata import Store
from cordata.store import Row, Tx
from cordata.store.queries import Query
from cordata.store.sqlite.tx import SqliteTx


async def raw(tx: Tx, sql: str, args: Sequence[object] = ()) -> list[Row]:
    """The rows of a statement with `?` for each of `args`, run within a unit."""
    if isinstance(tx, SqliteTx):
        tx.wrote = tx.wrote or not Query("raw", sql, "test", "sqlite").reads
        return list(tx._cursor.execute(sql, args).fetchall())
    from cordata.store.postgres.result import encode
    from cordata.store.postgres.unit import Call, Request, UnitTx

    assert isinstance(tx, UnitTx)
    numbers = count(1)
    pieces = sql.split("?")
    numbered = "".join([pieces[0], *(f"${next(numbers)}{piece}" for piece in pieces[1:])])
    call = Call(Query("raw", numbered, "test", "postgres"), [encode(value) for value in args])
    rows: list[Row] = await tx.ask(Request((call,), "rows"))
    return rows


async def until_blocked(store: Store, count: int = 1) -> None:
    """Wait until so many sessions of PostgreSQL wait for a lock."""

    async def are_blocked() -> bool:
        sql = "SELECT count(*) AS waiting FROM pg_locks WHERE NOT granted"
        [row] = await store.read(lambda tx: raw(tx, sql))
        return bool(row["waiting"] >= count)

    await until_async(are_blocked)
