"""SqliteTx: a Tx whose statements run at once; that of transaction() may first wait for a lock."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Awaitable, Mapping
from typing import Any, TypeVar

from cordata.errors import PermanentError
from cordata.store.queries import Queries, Query
from cordata.store.sqlite.fault import as_statement_error, home, is_of_statement, translate
from cordata.store.tx import PUBLISH, Row, Tx, foreign_await, writes_in_read, wrong_count
from cordata.unawaited import require_awaits

T = TypeVar("T")


class SqliteTx(Tx):
    """The Tx of `Store.run()`; its subclasses are those of `read()` and `transaction()`."""

    __slots__ = ("_cursor", "_queries", "wrote")

    def __init__(self, cursor: sqlite3.Cursor | None, queries: Queries, now_us: int) -> None:
        super().__init__(now_us)
        if cursor is not None:  # a transaction() gets it with its first write
            self._cursor = cursor
        self._queries = queries
        #: Whether a statement ran that may have written.
        self.wrote = False

    async def _run(self, query: Query, params: Mapping[str, Any]) -> sqlite3.Cursor:
        if self.failed is not None:
            raise self.failed
        args = query.values(params)
        if not query.reads:
            self.wrote = True
        try:
            return self._cursor.execute(query.sql, args)
        except sqlite3.Error as error:
            self.failed = translate(error, query.name, folder=home(self._cursor))
            if type(self.failed) is PermanentError and is_of_statement(
                error, query.sql, args, self._cursor.connection
            ):
                self.failed = as_statement_error(self.failed)
            raise self.failed from error
        except (TypeError, ValueError, OverflowError) as error:  # a value that SQLite cannot store
            self.failed = PermanentError(f"{query.name}: {error}")
            raise self.failed from error

    async def execute(self, name: str, /, **params: object) -> int:
        """As in Tx."""
        return (await self._run(self._queries.by_name[name], params)).rowcount

    async def write(self, name: str, /, *, rows: Any = None, **params: object) -> None:
        """As in Tx; at once."""
        changed = (await self._run(self._queries.by_name[name], params)).rowcount
        if rows is not None and changed != rows:
            self.failed = wrong_count(name, changed, rows)
            raise self.failed

    async def insert(self, table: str, /, **columns: object) -> None:
        """As in Tx; at once."""
        await self._run(self._queries.insert(table, columns), columns)

    async def _write_event(self, **event: object) -> bool:
        """As in Tx. A trigger adds the messages, and only `total_changes` counts these rows."""
        connection = self._cursor.connection
        before = connection.total_changes
        await self.write(PUBLISH, **event)
        return connection.total_changes > before + 1

    async def fetch_all(self, name: str, /, *, lock: Any = False, **params: object) -> list[Row]:
        """As in Tx."""
        cursor = await self._run(self._queries.by_name[name], params)
        try:
            return cursor.fetchall()
        except sqlite3.Error as error:
            self.failed = translate(error, name, folder=home(self._cursor))
            raise self.failed from error


class ReadTx(SqliteTx):
    """The Tx of `Store.read()`."""

    __slots__ = ()

    async def _run(self, query: Query, params: Mapping[str, Any]) -> sqlite3.Cursor:
        if not query.reads:
            raise writes_in_read(query.name)
        return await super()._run(query, params)


def drive(awaitable: Awaitable[T], tx: SqliteTx) -> T:
    """Run a unit to its end without an event loop. Raises: what the unit raised."""
    coroutine: Any = awaitable
    try:
        with require_awaits():
            coroutine.send(None)
    except StopIteration as end:
        if tx.failed is not None:
            raise tx.failed from None
        result: T = end.value
        return result
    misuse = foreign_await(coroutine)
    with contextlib.suppress(BaseException):  # what it raises on its way out changes nothing
        coroutine.close()
    raise misuse
