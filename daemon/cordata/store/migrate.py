"""Migrations: numbered files per component, each applied once, in one transaction.

`<package>/<dialect>/migrations/NNNN_name.sql`, numbered from 0001 without gaps. A number's
thousands are its major. Migrations of one major only add (expand), so an older program works on a
newer schema of its own major: during an upgrade workers of both versions run side by side. What
takes something away (contract) starts the next thousand, and older programs refuse that schema.

A file may say `-- foreign_keys: off` in a line of its own, as SQLite wants it for rebuilding a
table; then all foreign keys are checked before the commit.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from cordata import clock
from cordata.errors import ConfigError, LeaseLost
from cordata.store.fault import is_busy, is_storage
from cordata.store.fence import Fence
from cordata.store.queries import sql_folder
from cordata.store.tx import Row, Tx

_FILE = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql\Z")
_NO_FOREIGN_KEYS = re.compile(r"^--[ \t]*foreign_keys:[ \t]*off[ \t]*$", re.MULTILINE)
_MAJOR = 1000


class SchemaError(ConfigError):
    """The migrations in the program and those in the database do not fit together.

    A person has to act: a restart would find the same, so the process ends with 78.
    """

    code = "schema"


@dataclass(frozen=True, slots=True)
class Chain:
    """One component's migrations."""

    component: str
    package: str


#: The runtime's own; always the first.
RUNTIME = Chain("cordata", "cordata.store.sql")


@dataclass(frozen=True, slots=True)
class Applied:
    """One migration: applied, or to be applied."""

    component: str
    number: int
    name: str

    def __str__(self) -> str:
        return f"{self.component} {self.number:04d}_{self.name}"


@dataclass(frozen=True, slots=True)
class Migration(Applied):
    """A migration in the program, with its SQL."""

    script: str = field(repr=False, default="")


def load(chains: Sequence[Chain], dialect: str) -> list[Migration]:
    """The program's migrations, the runtime's first.

    Raises: SchemaError with every gap, duplicate and badly named file.
    """
    found: list[Migration] = []
    problems: list[str] = []
    for chain in dict.fromkeys((RUNTIME, *chains)):
        found += _load_chain(chain, dialect, problems)
    if problems:
        raise SchemaError("\n".join(problems), hint="numbers run from 0001 without gaps")
    return found


def _load_chain(chain: Chain, dialect: str, problems: list[str]) -> list[Migration]:
    found: list[Migration] = []
    folder = sql_folder(chain.package, dialect) / "migrations"
    for path in sorted(folder.glob("*.sql")):
        match = _FILE.match(path.name)
        if match is None:
            problems.append(f"{path}: the name must be NNNN_name.sql")
            continue
        number = int(match[1])
        if number != (expected := _following(found)) and number != _next_major(found):
            problems.append(f"{path}: expected number {expected:04d}")
        found.append(Migration(chain.component, number, match[2], path.read_text("utf-8")))
    return found


def _following(found: Sequence[Applied]) -> int:
    return found[-1].number + 1 if found else 1


def _next_major(found: Sequence[Applied]) -> int:
    return (found[-1].number // _MAJOR + 1) * _MAJOR if found else 1


def pending(
    known: Sequence[Migration], applied: Sequence[Applied]
) -> tuple[list[Migration], list[Applied]]:
    """What is to be applied, and what the database has beyond the program (same major).

    Raises: SchemaError when a migration was renamed, or the schema is of a newer major.
    """
    names = {(m.component, m.number): m.name for m in known}
    newest: dict[str, int] = {}
    for migration in known:
        newest[migration.component] = migration.number
    done = {(a.component, a.number): a.name for a in applied}
    problems, newer = [], []
    for entry in applied:
        if entry.component not in newest:
            continue  # another application's, or one that was removed
        name = names.get((entry.component, entry.number))
        if name == entry.name:
            continue
        if name is not None:
            problems.append(f"{entry} is in the database, {name!r} in the program")
        elif entry.number // _MAJOR > newest[entry.component] // _MAJOR:
            problems.append(
                f"the database has {entry}, this program ends at {newest[entry.component]:04d}"
            )
        else:
            newer.append(entry)
    if problems:
        raise SchemaError("\n".join(problems), hint="install the version that made this schema")
    todo = [m for m in known if (m.component, m.number) not in done]
    for migration in todo:
        if later := [n for c, n in done if c == migration.component and n > migration.number]:
            raise SchemaError(
                f"{migration} is missing in the database, which already has {max(later):04d}",
                hint="a migration gets the next number, never one in between",
            )
    return todo, newer


async def read_applied(tx: Tx) -> list[Applied]:
    """What the database has."""
    if await tx.fetch_one("migration.table") is None:
        return []
    rows = await tx.fetch_all("migration.all")
    return [Applied(row["component"], row["number"], row["name"]) for row in rows]


async def has_bootstrap(tx: Tx) -> Row | None:
    """A row if `bootstrap` ran already."""
    return await tx.fetch_one("migration.table")


def bootstrap(connection: sqlite3.Connection) -> None:
    """Make the tables that come before all migrations, if they are missing. In a thread."""
    path = sql_folder(RUNTIME.package, "sqlite") / "bootstrap.sql"
    connection.execute("BEGIN IMMEDIATE")
    for statement in statements(path.read_text("utf-8")):
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
            "INSERT INTO migration (component, number, name, applied_at) VALUES (?, ?, ?, ?)",
            (migration.component, migration.number, migration.name, clock.now_us()),
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
    row = connection.execute("SELECT term FROM lease WHERE name = ?", (fence.name,)).fetchone()
    if row is None or row[0] != fence.term:
        raise LeaseLost(f"term {fence.term} of the lease {fence.name!r} is over")


def _check_foreign_keys(connection: sqlite3.Connection, migration: Migration) -> None:
    broken = connection.execute("PRAGMA foreign_key_check").fetchone()
    if broken is not None:
        raise SchemaError(
            f"migration {migration}: a row of {broken[0]} points to no row of {broken[2]}"
        )


def statements(script: str) -> Iterator[str]:
    """The statements of a script; SQLite itself says where one ends (triggers hold semicolons).

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
