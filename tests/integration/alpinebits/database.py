"""The database behind a store, for a test that looks into it and writes what other parts would."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import RLock
from types import TracebackType
from typing import Any, Self

Found = dict[str, Any]
Execute = Callable[[str, tuple[object, ...]], list[Found]]


class Database:
    """SQL with `?` for each value, each in a transaction of its own, or `with database:` in one.

    For every thread, one at a time.
    """

    def __init__(self, execute: Execute) -> None:
        self._execute = execute
        self._lock = RLock()

    def execute(self, sql: str, *values: object) -> list[Found]:
        """The rows of a statement."""
        with self._lock:
            return self._execute(sql, values)

    def one(self, sql: str, *values: object) -> Any:
        """The single value of a statement."""
        [row] = self.execute(sql, *values)
        [value] = row.values()
        return value

    def __enter__(self) -> Self:
        self._lock.acquire()
        self._execute("BEGIN", ())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._execute("COMMIT" if error is None else "ROLLBACK", ())
        finally:
            self._lock.release()


@contextmanager
def connect(url: str, folder: Path) -> Iterator[Database]:
    """The database of a store: that of the folder, or that at the url."""
    with _embedded(folder) if url.startswith("sqlite:") else _server(url) as execute:
        yield Database(execute)


@contextmanager
def _embedded(folder: Path) -> Iterator[Execute]:
    path = folder / "cordata.db"
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as db:
        db.row_factory = sqlite3.Row

        def execute(sql: str, values: tuple[object, ...]) -> list[Found]:
            # At once the lock that the writers of the store take turns for, not at the first write.
            begin = "BEGIN IMMEDIATE" if sql == "BEGIN" else sql
            return [dict(row) for row in db.execute(begin, values)]

        yield execute


@contextmanager
def _server(url: str) -> Iterator[Execute]:
    import psycopg
    from psycopg.rows import dict_row

    with psycopg.connect(url, autocommit=True, row_factory=dict_row) as db:

        def execute(sql: str, values: tuple[object, ...]) -> list[Found]:
            query = sql.replace("%", "%%").replace("?", "%s") if values else sql
            cursor = db.execute(query.encode(), values or None)
            return cursor.fetchall() if cursor.description else []

        yield execute
