"""Migrations: numbered files per component, each applied once, in one transaction."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cordata import clock
from cordata.store.queries import sql_folder

_FILE = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql\Z")


@dataclass(frozen=True, slots=True)
class Chain:
    """One component's migrations: `<package>/<dialect>/migrations/NNNN_name.sql`."""

    component: str
    package: str


#: The runtime's own; always the first.
RUNTIME = Chain("cordata", "cordata.store.sql")


@dataclass(frozen=True, slots=True)
class Applied:
    """One migration that was applied."""

    component: str
    number: int
    name: str


def statements(script: str) -> list[str]:
    """The statements of a script."""
    found, held = [], ""
    for piece in re.split(r"(?<=;)", script):
        held += piece
        if sqlite3.complete_statement(held):
            found.append(held)
            held = ""
    return found


def pending(connection: sqlite3.Connection, chains: Sequence[Chain]) -> list[tuple[Applied, str]]:
    """What is not applied yet."""
    try:
        done = {(r[0], r[1]) for r in connection.execute("SELECT component, number FROM migration")}
    except sqlite3.OperationalError:
        done = set()
    found = []
    for chain in dict.fromkeys((RUNTIME, *chains)):
        for path in sorted((sql_folder(chain.package, "sqlite") / "migrations").glob("*.sql")):
            match = _FILE.match(path.name)
            assert match is not None
            applied = Applied(chain.component, int(match[1]), match[2])
            if (applied.component, applied.number) not in done:
                found.append((applied, path.read_text("utf-8")))
    return found


def apply(
    connection: sqlite3.Connection,
    chains: Sequence[Chain],
    progress: Callable[[str], None] | None,
) -> list[Applied]:
    """Apply what is pending."""
    bootstrap = sql_folder(RUNTIME.package, "sqlite") / "bootstrap.sql"
    connection.executescript(bootstrap.read_text("utf-8"))
    result = []
    for applied, script in pending(connection, chains) if chains else []:
        connection.execute("BEGIN IMMEDIATE")
        for statement in statements(script):
            connection.execute(statement)
        connection.execute(
            "INSERT INTO migration VALUES (?, ?, ?, ?)",
            (applied.component, applied.number, applied.name, clock.now_us()),
        )
        connection.execute("COMMIT")
        result.append(applied)
        if progress is not None:
            progress(f"{applied.component} {applied.number:04d}_{applied.name}")
    return result
