"""SQL that a test writes itself, past the named statements: it looks at tables as it likes."""

from __future__ import annotations

from collections.abc import Sequence

from cordata.store import Row, Tx
from cordata.store.sqlite.tx import SqliteTx


async def raw(tx: Tx, sql: str, args: Sequence[object] = ()) -> list[Row]:
    """The rows of a statement, run within a unit."""
    assert isinstance(tx, SqliteTx)
    return list(tx._cursor.execute(sql, args).fetchall())
