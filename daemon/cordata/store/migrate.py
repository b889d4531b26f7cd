"""Migrations: numbered files per component, each applied once, in one transaction.

`<package>/migrations/NNNN_name.sql` is for both dialects, `<package>/<dialect>/migrations/` for
one. A file for both may have what `queries.render` replaces.

Numbers run from 0001 without gaps; the thousands of a number are its major. Migrations of one major
only add (expand), so an older program works on a newer schema of the same major: during an upgrade
workers of both versions run side by side. A migration that removes something (contract) starts the
next thousand; older programs refuse that schema.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from msgspec import Struct

from cordata import events, log
from cordata.errors import ConfigError
from cordata.store.fence import Fence
from cordata.store.queries import package_folder, render, sql_folder
from cordata.store.tx import Tx, Unit

_log = log.logger("cordata.store")

_FILE = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql\Z")
_MAJOR = 1000


class SchemaError(ConfigError):
    """The migrations in the program and those in the database do not match.

    An operator has to act, a restart does not help: the process exits with 78.
    """

    code = "schema"


class Chain(Struct, frozen=True):
    """One component's migrations."""

    component: str
    package: str


#: The runtime's migrations; always the first.
RUNTIME = Chain("cordata", "cordata.store.sql")


@dataclass(frozen=True, slots=True)
class MigrationId:
    """Which migration: one of the program, or one that a database has."""

    component: str
    number: int
    name: str
    #: SHA-256 of its text, in hex.
    digest: str = field(default="", compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.component} {self.number:04d}_{self.name}"


#: Marks a database that `cordata db copy` has not completed.
COPYING = MigrationId("db copy", 0, "unfinished")
#: Component of the mark of a database that was copied to another one and is no longer to be used;
#: its name says where to and when.
MOVED = "db copy --finish"


@dataclass(frozen=True, slots=True)
class Migration(MigrationId):
    """A migration in the program, with its SQL."""

    script: str = field(repr=False, default="")


def load(chains: Sequence[Chain], dialect: str) -> list[Migration]:
    """The program's migrations, the runtime's first.

    Raises: SchemaError with every gap, duplicate and badly named file, or when one cannot be read.
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
    for path, text in _read_files(chain, dialect):
        match = _FILE.match(path.name)
        if match is None:
            problems.append(f"{path}: the name must be NNNN_name.sql")
            continue
        number = int(match[1])
        if number != (expected := _following(found)) and number != _next_major(found):
            problems.append(f"{path}: expected number {expected:04d}")
        script = render(text, dialect)
        digest = hashlib.sha256(script.encode()).hexdigest()
        found.append(Migration(chain.component, number, match[2], digest, script))
    return found


def _read_files(chain: Chain, dialect: str) -> list[tuple[Path, str]]:
    """The files in order, with their text. Raises: SchemaError when one cannot be read: without it
    a schema that lacks its tables would count as current.
    """
    folder = package_folder(chain.package) / "migrations"
    try:
        if not folder.is_dir():
            folder = sql_folder(chain.package, dialect) / "migrations"
        paths = sorted(path for path in folder.iterdir() if path.suffix == ".sql")
        return [(path, path.read_text("utf-8")) for path in paths]
    except OSError as error:
        raise SchemaError(
            f"migrations of {chain.component}: {error.filename}: {error.strerror}",
            hint=f"the user of the service reads them; `namei -l {error.filename}` shows which part"
            " of the path is missing or closed",
        ) from error


def bootstrap_script(dialect: str) -> str:
    """What creates the tables that must exist before the first migration, if they are missing."""
    return render((package_folder(RUNTIME.package) / "bootstrap.sql").read_text("utf-8"), dialect)


def _following(found: Sequence[MigrationId]) -> int:
    return found[-1].number + 1 if found else 1


def _next_major(found: Sequence[MigrationId]) -> int:
    return (found[-1].number // _MAJOR + 1) * _MAJOR if found else 1


def require_in_use(applied: Sequence[MigrationId]) -> None:
    """Raises: SchemaError when the database is an unfinished copy, or was moved to another one."""
    if COPYING in applied:
        raise SchemaError(
            "the database is a copy that is not finished",
            hint="`cordata db copy --finish`, with the configuration of its source, completes it",
        )
    for entry in applied:
        if entry.component == MOVED:
            raise SchemaError(
                f"the store was moved to {entry.name}",
                hint="set [store] url to that one; `cordata db reopen` is the way back to this one",
            )


def pending(
    known: Sequence[Migration], applied: Sequence[MigrationId]
) -> tuple[list[Migration], list[MigrationId]]:
    """Pending migrations, and those of the same major that only the database has.

    Raises: SchemaError when the name or text of a migration differs from the one that was applied,
    the schema is of a newer major, or the database is an unfinished copy, or was moved.
    """
    require_in_use(applied)
    programs = {(m.component, m.number): m for m in known}
    newest: dict[str, int] = {}
    for migration in known:
        newest[migration.component] = migration.number
    done = {(a.component, a.number): a.name for a in applied}
    problems, changed, newer = [], [], []
    for entry in applied:
        if entry.component not in newest:
            continue  # of another application, or of one that was removed
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
            " (or delete the database, if you use it only for development)",
        )
    todo = [m for m in known if (m.component, m.number) not in done]
    for migration in todo:
        if later := [n for c, n in done if c == migration.component and n > migration.number]:
            raise SchemaError(
                f"{migration} is missing in the database, which already has {max(later):04d}",
                hint="a migration gets the next number, never one in between",
            )
    return todo, newer


async def read_applied(tx: Tx) -> list[MigrationId]:
    """The migrations that the database has."""
    if await tx.fetch_one("migration.table") is None:
        return []
    rows = await tx.fetch_all("migration.all")
    return [
        MigrationId(row["component"], row["number"], row["name"], row["digest"]) for row in rows
    ]


class Schema:
    """Finds and applies pending migrations."""

    def __init__(
        self,
        dialect: str,
        read: Callable[[Unit[Any]], Awaitable[Any]],
        bootstrap: Callable[[], Awaitable[None]],
        apply_one: Callable[[Migration, Fence | None], Awaitable[bool]],
    ) -> None:
        """`apply_one` applies one migration in one transaction; False: another process did it."""
        self._dialect = dialect
        self._read = read
        self._bootstrap = bootstrap
        self._apply_one = apply_one
        self._known: dict[tuple[Chain, ...], list[Migration]] = {}
        self._newer: list[MigrationId] = []

    async def bootstrap(self) -> None:
        """Create the tables that the lease and the migrations need, if they are missing."""
        if await self._read(lambda tx: tx.fetch_one("migration.table")) is None:
            await self._bootstrap()

    async def pending(self, chains: Sequence[Chain]) -> list[MigrationId]:
        """Pending migrations. Raises: SchemaError."""
        todo = await self._pending(chains)
        return [MigrationId(m.component, m.number, m.name) for m in todo]

    async def _pending(self, chains: Sequence[Chain]) -> list[Migration]:
        key = tuple(chains)
        if key not in self._known:
            self._known[key] = load(key, self._dialect)
        applied = await self._read(read_applied)
        todo, newer = pending(self._known[key], applied)
        if newer and newer != self._newer:
            self._newer = newer
            _log.warning("the schema is newer than this program: %s", ", ".join(map(str, newer)))
        return todo

    async def migrate(
        self,
        chains: Sequence[Chain],
        fence: Fence | None,
        progress: Callable[[str], None] | None,
    ) -> list[MigrationId]:
        """Apply the pending migrations, each in a separate transaction. Returns them."""
        await self.bootstrap()
        done: list[MigrationId] = []
        try:
            for migration in await self._pending(chains):
                if progress is not None:
                    progress(f"applying {migration}")
                if await self._apply_one(migration, fence):
                    done.append(MigrationId(migration.component, migration.number, migration.name))
        finally:
            _log_applied(done)
        return done


def _log_applied(done: Sequence[MigrationId]) -> None:
    """One line for each component, also if a later migration failed."""
    for component, of_it in groupby(done, key=lambda one: one.component):
        names = [str(one) for one in of_it]
        last = f" to {names[-1].removeprefix(f'{component} ')}" if len(names) > 1 else ""
        _log.info("applied %s%s", names[0], last, extra=log.fields(events.MIGRATION_APPLIED))
