"""Runs migration scripts on SQLite: each in one transaction.

A file may have the line `-- foreign_keys: off`, which SQLite needs for rebuilding a table; then all
foreign keys are checked before the commit.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator

from cordata import clock
from cordata.store.fence import Fence, require_newest
from cordata.store.migrate import Migration, SchemaError, bootstrap_script
from cordata.store.sqlite.fault import is_busy, is_storage

_NO_FOREIGN_KEYS = re.compile(r"^--[ \t]*foreign_keys:[ \t]*off[ \t]*$", re.MULTILINE)


def bootstrap(connection: sqlite3.Connection) -> None:
    """Create the tables that come before all migrations, if they are missing. In a thread."""
    connection.execute("BEGIN IMMEDIATE")
    for statement in statements(bootstrap_script("sqlite")):
        connection.execute(statement)
    connection.execute("COMMIT")


def apply_one(connection: sqlite3.Connection, migration: Migration, fence: Fence | None) -> bool:
    """Apply one migration and note it, in one transaction. In a thread, under the write lock.

    False: another process was faster.
    Raises: SchemaError naming file and statement; LeaseLost; sqlite3.Error when the disk fails.
    The caller rolls back.
    """
    loose = _NO_FOREIGN_KEYS.search(migration.script) is not None
    if loose:
        connection.execute("PRAGMA foreign_keys = OFF")
    try:
        connection.execute("BEGIN IMMEDIATE")
        if fence is not None:
            _check_fence(connection, fence)
        done = "SELECT 1 FROM migration WHERE component = ? AND number = ?"
        if connection.execute(done, (migration.component, migration.number)).fetchone():
            return False
        _run_script(connection, migration)
        if loose:
            _check_foreign_keys(connection, migration)
        connection.execute(
            "INSERT INTO migration (component, number, name, digest, applied_at)"
            " VALUES (?, ?, ?, ?, ?)",
            (
                migration.component,
                migration.number,
                migration.name,
                migration.digest,
                clock.now_us(),
            ),
        )
        connection.execute("COMMIT")
        return True
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        connection.execute("PRAGMA foreign_keys = ON")


def _run_script(connection: sqlite3.Connection, migration: Migration) -> None:
    for statement in statements(migration.script):
        try:
            connection.execute(statement)
        except sqlite3.Error as error:
            if is_storage(error) or is_busy(error):
                raise
            first = " ".join(_without_comments(statement).split())[:120]
            raise SchemaError(
                f"migration {migration}: {error}", hint=f"the statement: {first}"
            ) from error
        if not connection.in_transaction:
            raise SchemaError(f"migration {migration}: a script must not commit or roll back")


def _check_fence(connection: sqlite3.Connection, fence: Fence) -> None:
    row = connection.execute("SELECT term FROM lease WHERE name = 'primary'").fetchone()
    require_newest(fence, None if row is None else row[0])


def _check_foreign_keys(connection: sqlite3.Connection, migration: Migration) -> None:
    broken = connection.execute("PRAGMA foreign_key_check").fetchone()
    if broken is not None:
        raise SchemaError(
            f"migration {migration}: a row of {broken[0]} points to no row of {broken[2]}"
        )


def statements(script: str) -> Iterator[str]:
    """The statements of a script; SQLite finds their ends, since triggers contain semicolons.

    Raises: SchemaError when the last one does not end.
    """
    held = ""
    for piece in re.split(r"(?<=;)", script):
        held += piece
        if sqlite3.complete_statement(held):
            yield held.strip()
            held = ""
    if _without_comments(held).strip():
        raise SchemaError(f"a statement has no end: {' '.join(held.split())[:120]}")


def _without_comments(text: str) -> str:
    return re.sub(r"--[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
