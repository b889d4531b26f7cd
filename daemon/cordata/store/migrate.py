"""Migrations: numbered files per component, each applied once, in one transaction.

`<package>/<dialect>/migrations/NNNN_name.sql`, numbered from 0001 without gaps. A number's
thousands are its major. Migrations of one major only add (expand), so an older program works on a
newer schema of its own major: during an upgrade workers of both versions run side by side. What
takes something away (contract) starts the next thousand, and older programs refuse that schema.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from cordata.errors import ConfigError
from cordata.store.queries import sql_folder
from cordata.store.tx import Row, Tx

_FILE = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql\Z")
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
    #: SHA-256 of its text, in hex.
    digest: str = field(default="", compare=False, repr=False)

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
        script = path.read_text("utf-8")
        digest = hashlib.sha256(script.encode()).hexdigest()
        found.append(Migration(chain.component, number, match[2], digest, script))
    return found


def _following(found: Sequence[Applied]) -> int:
    return found[-1].number + 1 if found else 1


def _next_major(found: Sequence[Applied]) -> int:
    return (found[-1].number // _MAJOR + 1) * _MAJOR if found else 1


def pending(
    known: Sequence[Migration], applied: Sequence[Applied]
) -> tuple[list[Migration], list[Applied]]:
    """What is to be applied, and what the database has beyond the program (same major).

    Raises: SchemaError when a migration was renamed or has another text than the one that was
    applied, or the schema is of a newer major.
    """
    programs = {(m.component, m.number): m for m in known}
    newest: dict[str, int] = {}
    for migration in known:
        newest[migration.component] = migration.number
    done = {(a.component, a.number): a.name for a in applied}
    problems, changed, newer = [], [], []
    for entry in applied:
        if entry.component not in newest:
            continue  # another application's, or one that was removed
        own = programs.get((entry.component, entry.number))
        if own is not None and own.name != entry.name:
            problems.append(f"{entry} is in the database, {own.name!r} in the program")
        elif own is not None:
            if own.digest != entry.digest:
                changed.append(f"the text of {entry} has changed since it was applied")
        elif entry.number // _MAJOR > newest[entry.component] // _MAJOR:
            problems.append(
                f"the database has {entry}, this program ends at {newest[entry.component]:04d}"
            )
        else:
            newer.append(entry)
    if problems:
        hint = "install the version that made this schema"
        raise SchemaError("\n".join([*problems, *changed]), hint=hint)
    if changed:
        raise SchemaError(
            "\n".join(changed),
            hint="restore the text, and write the change into a migration with the next number"
            " (a database of your own for development: delete it)",
        )
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
    return [Applied(row["component"], row["number"], row["name"], row["digest"]) for row in rows]


async def has_bootstrap(tx: Tx) -> Row | None:
    """A row if `bootstrap` ran already."""
    return await tx.fetch_one("migration.table")
