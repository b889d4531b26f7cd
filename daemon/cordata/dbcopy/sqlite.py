"""The side of a copy that is SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from cordata.backup.sqlite import Openers, stopped
from cordata.dbcopy.side import Column, Row, Side, Table, quoted, refused
from cordata.errors import CordataError
from cordata.store.sqlite.connection import Database
from cordata.store.sqlite.lock import FileLock
from cordata.store.sqlite.migration import statements

_BUSY_MS = 5000
#: SQLite's own default.
_CHECKPOINT_PAGES = 1000
#: Every column that a statement can write: not those of `GENERATED ALWAYS`.
_COLUMNS = (
    "SELECT t.name, c.name, c.pk FROM sqlite_schema AS t JOIN pragma_table_xinfo(t.name) AS c"
    " WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite\\_%' ESCAPE '\\' AND c.hidden = 0"
)


class SqliteSide(Side):
    """A connection to the file."""

    def __init__(
        self, path: Path, connection: sqlite3.Connection, lock: FileLock, openers: Openers
    ) -> None:
        super().__init__(str(path))
        self._connection = connection
        self._lock = lock
        self._openers = openers

    def fetch(self, sql: str, values: Sequence[object] = ()) -> list[Row]:
        """As in Side."""
        return self._connection.execute(sql, values).fetchall()

    def run_script(self, script: str) -> None:
        """As in Side."""
        for statement in statements(script):
            self._connection.execute(statement)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """As in Side."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def tables(self) -> dict[str, Table]:
        """As in Side."""
        found: dict[str, list[Column]] = {}
        for table, name, place in self.fetch(_COLUMNS):
            column = Column(
                name=name, place=place - 1 if place else None, read=quoted(name), order=quoted(name)
            )
            found.setdefault(table, []).append(column)
        return {name: Table.of(name, columns) for name, columns in found.items()}

    def change(self, table: Table, gone: Sequence[Row], new: Sequence[Row]) -> None:
        """As in Side."""
        name, columns = quoted(table.name), [quoted(one) for one in table.names]
        same = " AND ".join(f"{one} = ?" for one in columns[: table.width])
        values = ", ".join("?" * len(columns))
        add = f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({values}) ON CONFLICT DO NOTHING"
        try:
            with self.transaction():
                self._connection.executemany(f"DELETE FROM {name} WHERE {same}", gone)
                self._connection.executemany(add, new)
        except sqlite3.IntegrityError as error:
            raise refused(table, error) from error

    def lock(self, tables: Sequence[str]) -> None:
        """As in Side. It is, if it was opened `alone`."""

    def require_unused(self) -> None:
        """As in Side."""
        self._openers.require_none()

    def unlock(self) -> None:
        """As in Side. Each statement took effect at once."""

    def relax(self) -> list[str]:
        """As in Side. This connection never checks foreign keys."""
        found = self.fetch("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'")
        for name, _ in found:
            self._connection.execute(f"DROP TRIGGER {quoted(name)}")
        return [sql for _, sql in found]

    def settle(self, tables: Sequence[Table]) -> None:
        """As in Side. The next number of a table follows its highest by itself."""
        if broken := self.fetch("PRAGMA foreign_key_check"):
            child, _, parent, _ = broken[0]
            raise CordataError(f"a row of {child} points to no row of {parent}")
        self._lock.mark()


@contextmanager
def opened(path: Path, state_dir: Path, *, alone: bool, make: bool) -> Iterator[SqliteSide]:
    """The file; `alone`: no process of the service may use it meanwhile; `make`: make one that is
    missing. Raises: CordataError.
    """
    database = Database(path)
    if not make:
        database.require_file()
    with ExitStack() as stack:
        if alone:
            lock = stack.enter_context(stopped(path, state_dir))
        else:
            lock = FileLock(database.lock_path)
            stack.callback(lock.close)
        if make and not (path.exists() and path.stat().st_size):
            database.create(lost=False)
        openers = Openers(path)
        stack.callback(openers.close)
        anchor = database.existing()
        connection = database.open(write=alone)
        stack.callback(connection.close)
        if not alone:  # the last connection that closes makes a checkpoint, which is locked
            stack.callback(lock.acquire)
        anchor.close()
        connection.row_factory = None
        connection.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
        connection.execute("PRAGMA foreign_keys = OFF")
        if alone:  # no service runs that would make checkpoints
            connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        yield SqliteSide(path, connection, lock, openers)
