"""One of the two databases of a copy: its tables, and pages of their rows in the order of the keys.

Values have the same form on both sides: integers, floats, text, bytes, NULL. A boolean of
PostgreSQL is read as 0 or 1, as SQLite stores it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from cordata.errors import CordataError
from cordata.store.migrate import Migration, MigrationId

#: The values of a row, those of its key first.
Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column that is written, and not generated."""

    name: str
    #: Its place in the primary key, from 0; None: it is not in the key.
    place: int | None
    #: How it is read, and how rows are ordered by it.
    read: str
    order: str
    #: A parameter of its type.
    mark: str = "?"
    #: PostgreSQL: the type of its values as they are read and sent, and what follows such a value
    #: where it is stored.
    sent: str = ""
    cast: str = ""
    #: A type that the other kind of database does not have; "": it has it.
    unknown_type: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table; the columns of its key come first, then the others by name."""

    name: str
    columns: tuple[Column, ...]
    #: How many columns the key has.
    width: int

    @classmethod
    def of(cls, name: str, columns: Sequence[Column]) -> Table:
        """A table with these columns, in any order."""
        key = sorted(
            (one for one in columns if one.place is not None), key=lambda one: one.place or 0
        )
        rest = sorted((one for one in columns if one.place is None), key=lambda one: one.name)
        return cls(name, (*key, *rest), len(key))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(one.name for one in self.columns)

    @property
    def order(self) -> str:
        """The columns of the key, as rows are ordered by them."""
        return ", ".join(one.order for one in self.columns[: self.width])


class Side(ABC):
    """A connection to one database. Errors are those of the driver."""

    def __init__(self, name: str) -> None:
        #: For people: its file, or its url (which has no password).
        self.name = name

    @abstractmethod
    def fetch(self, sql: str, values: Sequence[object] = ()) -> list[Row]:
        """Run a statement with a `?` for each value; its rows."""

    @abstractmethod
    def run_script(self, script: str) -> None:
        """Run several statements, in an open transaction."""

    @abstractmethod
    def transaction(self) -> AbstractContextManager[object]:
        """All statements of the block take effect together."""

    @abstractmethod
    def tables(self) -> dict[str, Table]:
        """All tables by name."""

    @abstractmethod
    def change(self, table: Table, gone: Sequence[Row], new: Sequence[Row]) -> None:
        """Delete the rows with the keys `gone`, then add rows, in one transaction. A row whose
        unique value another row has is left out.
        """

    @abstractmethod
    def lock(self, tables: Sequence[str]) -> None:
        """No other process can write to the tables until `unlock`, or the end of the connection."""

    @abstractmethod
    def require_unused(self) -> None:
        """Raises: CordataError if a process has connected since the side was opened `alone`: it
        waits for the lock, and would write as soon as it gets it, or has it already.
        """

    @abstractmethod
    def unlock(self) -> None:
        """What was written since `lock` takes effect."""

    @abstractmethod
    def relax(self) -> list[str]:
        """Disable triggers and foreign keys, so that rows can be written in any order. Returns the
        statements that enable them again.
        """

    @abstractmethod
    def settle(self, tables: Sequence[Table]) -> None:
        """After all rows are written: let generated numbers continue, check foreign keys."""

    def page(self, table: Table, after: Row | None, limit: int) -> list[Row]:
        """The first rows after a key, at most `limit`; None: from the first row on."""
        columns = ", ".join(one.read for one in table.columns)
        where = ""
        if after is not None:
            key = ", ".join(one.mark for one in table.columns[: table.width])
            where = f" WHERE ({table.order}) > ({key})"
        return self.fetch(
            f"SELECT {columns} FROM {quoted(table.name)}{where}"
            f" ORDER BY {table.order} LIMIT {limit}",
            after or (),
        )

    def count(self, table: str) -> int:
        """Number of its rows."""
        [(count,)] = self.fetch(f"SELECT count(*) FROM {quoted(table)}")
        return int(count)

    def applied(self) -> list[MigrationId]:
        """The migrations of the database."""
        rows = self.fetch("SELECT component, number, name, digest FROM migration")
        return [MigrationId(*row) for row in rows]

    def record(self, migration: MigrationId, now_us: int) -> None:
        """Write that a migration is applied."""
        values = (migration.component, migration.number, migration.name, migration.digest, now_us)
        columns = "component, number, name, digest, applied_at"
        self.fetch(f"INSERT INTO migration ({columns}) VALUES (?, ?, ?, ?, ?)", values)

    def migrate(self, bootstrap: str, migrations: Sequence[Migration], now_us: int) -> None:
        """Make all tables in an empty database, in an open transaction."""
        self.run_script(bootstrap)
        for migration in migrations:
            self.run_script(migration.script)
            self.record(migration, now_us)


def quoted(name: str) -> str:
    """A name within a statement."""
    return '"' + name.replace('"', '""') + '"'


def refused(table: Table, reason: object) -> CordataError:
    """The error for a row that the target cannot store."""
    return CordataError(
        f"the copy refused a row of {table.name}: {reason}",
        hint="correct the row in the store, then call the same command again",
    )
