"""SQL that a test writes itself, past the named statements: it looks at tables as it likes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

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
