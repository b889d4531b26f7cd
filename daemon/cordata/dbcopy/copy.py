"""Copies all tables to a database of the other kind, in passes.

    target is empty --> made: tables by the migrations, without foreign keys and triggers; marked
                          |
                          |  first pass, as often as wanted: the service runs, or is stopped
                          v
                        copied, as of no one moment
                          |
                          |  last pass: the service is stopped
                          v
                        equal --> settled: numbers, foreign keys, triggers; the source is marked,
                                  then the mark of the target is removed

A pass reads both sides page by page in the order of the key, and writes what differs, each page in
one transaction. So a pass resumes one that was killed, the last pass finds what has changed, and a
page that it finds equal is verified. No service starts on a marked database (`store/migrate.py`),
and from the first pass on one of the two is always marked, so services never run on both.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import msgspec

from cordata import clock
from cordata.backup.archive import Draw
from cordata.backup.owner import acting_as_owner
from cordata.backup.restore import Host, check_units
from cordata.config.sections import StoreConfig
from cordata.context_factory import store_password
from cordata.dbcopy import sqlite
from cordata.dbcopy.side import Row, Side, Table
from cordata.errors import CordataError
from cordata.store import Chain, dialect_of
from cordata.store.migrate import (
    COPYING,
    MOVED,
    MigrationId,
    SchemaError,
    bootstrap_script,
    load,
    pending,
    require_in_use,
)
from cordata.store.sqlite.connection import database_path
from cordata.store.sqlite.fault import translate

#: Made in the target: what it is a copy of, and the statements that `Side.relax` returned.
_STATE = "db_copy"
#: Differs on the two sides: it has the digests of the SQL in each dialect.
_OWN = ("migration", _STATE)
#: Rows of a page, at most; fewer if they are larger than this together. The size of rows is known
#: from the page before, so a table begins with one row, and a page has at most twice as many rows
#: as the one before.
_PAGE_ROWS, _PAGE_BYTES = 1000, 1 << 22
#: A row is left out while another one has its unique value; the next round finds that one changed.
_ROUNDS = 3
_DRAW_S = 0.2
#: How long a process that ends, or its session, may still be there; pause between two looks.
_LINGER_S, _LOOK_S = 5.0, 0.2
#: Numbers may have been given to transactions that were rolled back, and to rows that are deleted;
#: the copy goes on after its last row. A position that was read from such a number must not be
#: beyond the next one, or the next events would be taken for handled.
_POSITIONS = (
    ("consumer_group", "since", "event"),
    ("consumer_group", "lacks_after", "event"),
    ("subscription", "origin", "stored_event"),
    ("subscription_partition", "position", "stored_event"),
)

_encode = msgspec.msgpack.Encoder().encode


@dataclass(slots=True)
class CopiedTable:
    """What a pass has done with one table."""

    rows: int = 0
    #: Rows that were added, and those that were deleted; one that was changed counts as both.
    written: int = 0
    deleted: int = 0
    #: Of all its rows, in the order of the key. Both sides have the same after the last pass.
    sha256: str = ""


@dataclass(slots=True, kw_only=True)
class Copied:
    """What a pass has done."""

    source: str
    target: str
    #: Whether it was the last one: the target is complete.
    finished: bool
    #: How long it took.
    seconds: float = 0.0
    tables: dict[str, CopiedTable] = field(default_factory=dict)


def copy(host: Host, url: str, *, finish: bool, draw: Draw) -> Copied:
    """One pass from the store of the configuration to the database at `url`, which is valid.

    `finish`: the last one, for which the service must be stopped. Safe to kill: the next pass
    goes on. Raises: CordataError, of which SchemaError if the program has another schema than the
    source.
    """
    config, begun = host.config, clock.monotonic()
    target_config = replace(config.store, url=url, session_url="")
    kinds = {"sqlite": "SQLite", "postgres": "PostgreSQL"}
    if dialect_of(config.store) == dialect_of(target_config):
        raise CordataError(
            f"both databases are {kinds[dialect_of(target_config)]}",
            hint="`cordata backup` and `cordata restore` copy a store to one of the same kind",
        )
    if finish and host.is_server:
        check_units()
    password = store_password(config)
    with (
        _opened(host, config.store, password, alone=finish, make=False) as source,
        _opened(host, target_config, password, alone=True, make=True) as target,
    ):
        if "migration" not in source.tables():
            raise CordataError(
                f"there is no store to copy: {source.name} has no tables",
                hint="is [store] url right? `cordata migrate` creates the tables",
            )
        ours = source.applied()
        if _STATE in target.tables():  # a last pass may have been killed just before its end
            ours = [one for one in ours if not _is_moved_to(one, target)]
        _check_schema(ours, host.chains, dialect_of(config.store))
        _prepare(source, target, host.chains, dialect_of(target_config))
        done = Copied(source=source.name, target=target.name, finished=finish)
        try:
            tables = _pairs(source, target)
            if finish:
                source.lock([ours.name for ours, _ in tables])
            done.tables = _Pass(source, target, draw, verify=finish).run(tables)
            if finish:
                draw(None, "checking foreign keys")
                _finish(source, target, [theirs for _, theirs in tables])
        except CordataError as error:
            error.hint = error.hint or "the same command goes on where this one ended"
            raise
    done.seconds = clock.monotonic() - begun
    return done


def reopen(host: Host) -> str | None:
    """Let services start again on the store of the configuration, which a last pass has copied.

    Returns where it was moved to, and when; None: it was not. Raises: CordataError if a process
    uses the store, of which SchemaError if it is itself a copy that is not finished.
    """
    config = host.config
    if host.is_server:
        check_units()
    password = store_password(config)
    with _opened(host, config.store, password, alone=True, make=False) as side:
        if "migration" not in side.tables():
            return None
        applied = side.applied()
        require_in_use([one for one in applied if one.component != MOVED])
        moved = [one.name for one in applied if one.component == MOVED]
        _unmark(side)
    return moved[0] if moved else None


@contextmanager
def _opened(
    host: Host, store: StoreConfig, password: str | None, *, alone: bool, make: bool
) -> Iterator[Side]:
    state = host.config.paths.state
    if dialect_of(store) == "sqlite":
        path = database_path(store.url, state)
        try:
            with (
                acting_as_owner(path.parent),
                sqlite.opened(path, state, alone=alone, make=make) as file,
            ):
                yield file
        except sqlite3.Error as error:
            raise translate(error, str(path), folder=path.parent) from error
        return
    from cordata.dbcopy import postgres

    with postgres.opened(store, password, state) as session:
        if alone:
            _await_unused(session)
        yield session


def _await_unused(side: Side) -> None:
    """Wait for processes that are about to end. Raises: CordataError if some have not."""
    deadline = clock.monotonic() + _LINGER_S
    while True:
        try:
            side.require_unused()
            return
        except CordataError:
            if clock.monotonic() >= deadline:
                raise
        time.sleep(_LOOK_S)


def _check_schema(applied: Sequence[MigrationId], chains: Sequence[Chain], dialect: str) -> None:
    """Raises: SchemaError unless a database has the schema of this program."""
    todo, newer = pending(load(chains, dialect), applied)
    if todo:
        raise SchemaError(
            f"the schema is older than this program: {', '.join(map(str, todo))}",
            hint="start the service once with this version, which migrates the store; begin an"
            " unfinished copy again, in an empty database",
        )
    foreign = [one for one in applied if one.component not in {c.component for c in chains}]
    if newer or foreign:
        raise SchemaError(
            f"this program has no migration {', '.join(map(str, [*newer, *foreign]))}",
            hint="use the version, and the application (--app), that the service runs",
        )


def _prepare(source: Side, target: Side, chains: Sequence[Chain], dialect: str) -> None:
    """Prepare an empty target. Raises: CordataError if it is another database than ours."""
    tables = target.tables()
    if _STATE in tables:
        [(made_of,)] = target.fetch(f"SELECT source FROM {_STATE}")
        if made_of != source.name:
            raise CordataError(
                f"{target.name} is the unfinished copy of another store: {made_of}",
                hint="name an empty database, or delete it",
            )
        _check_schema([one for one in target.applied() if one != COPYING], chains, dialect)
        return
    if tables:
        raise CordataError(
            f"{target.name} is in use: it has tables ({', '.join(sorted(tables)[:3])}, ...)",
            hint="name an empty database, or a file that does not exist; move an old one aside",
        )
    now_us = clock.now_us()
    with target.transaction():
        target.migrate(bootstrap_script(dialect), load(chains, dialect), now_us)
        target.run_script(f"CREATE TABLE {_STATE} (source TEXT NOT NULL, again TEXT NOT NULL);")
        values = (source.name, json.dumps(target.relax()))
        target.fetch(f"INSERT INTO {_STATE} (source, again) VALUES (?, ?)", values)
        target.record(COPYING, now_us)


def _pairs(source: Side, target: Side) -> list[tuple[Table, Table]]:
    """The tables of both sides. Raises: CordataError with all that cannot be copied."""
    ours, theirs = source.tables(), target.tables()
    pairs, problems = [], []
    for name, table in sorted(ours.items()):
        if name in _OWN:
            continue
        other = theirs.get(name)
        if other is not None and not (problem := _mismatch(table, other)):
            pairs.append((table, other))
        elif source.count(name):
            problems.append(f"{name}: {problem if other else 'no such table in the target'}")
    if problems:
        raise CordataError(
            f"tables that cannot be copied: {'; '.join(problems)}",
            hint="both kinds of database must have the same tables, with primary keys; see the"
            " words in braces in docs/develop/migrations.md",
        )
    return pairs


def _mismatch(ours: Table, theirs: Table) -> str:
    """Why a table cannot be copied; "": it can."""
    if not ours.width or not theirs.width:
        return "it has no primary key"
    if ours.width != theirs.width or ours.names != theirs.names:
        differing = set(ours.names) ^ set(theirs.names)
        return f"its columns differ: {', '.join(sorted(differing)) or 'the primary key'}"
    unknown = [
        f"{one.name} has the type {one.unknown_type}"
        for one in (*ours.columns, *theirs.columns)
        if one.unknown_type
    ]
    return ", ".join(unknown)


class _Pass:
    """One pass over all tables."""

    def __init__(self, source: Side, target: Side, draw: Draw, *, verify: bool) -> None:
        """`verify`: nobody else writes, and both sides must be equal at the end."""
        self._source = source
        self._target = target
        self._draw = draw
        self._verify = verify
        self._total = 0
        self._done = 0
        self._next_deadline = 0.0

    def run(self, tables: Sequence[tuple[Table, Table]]) -> dict[str, CopiedTable]:
        """Copy all. Raises: CordataError when a table cannot be made equal."""
        counts = {ours.name: self._source.count(ours.name) for ours, _ in tables}
        self._total = sum(counts.values())
        found = {}
        for ours, theirs in tables:
            copied = self._copy(ours, theirs)
            found[ours.name] = copied
            if self._verify:
                there = self._target.count(theirs.name)
                if not counts[ours.name] == copied.rows == there:
                    raise CordataError(
                        f"{ours.name} has {counts[ours.name]} rows, of which {copied.rows} were"
                        f" read; the copy has {there}",
                        hint="its primary key has another order, or a NULL, on one side",
                    )
        return found

    def _copy(self, ours: Table, theirs: Table) -> CopiedTable:
        """Copy one table, in several rounds if some rows have to wait for others."""
        copied = CopiedTable()
        for _ in range(_ROUNDS):
            if self._walk(ours, theirs, copied):
                return copied
        raise CordataError(
            f"rows of {ours.name} are not the same in the copy as they were written",
            hint="a value has another form there: compare the types of its columns",
        )

    def _walk(self, ours: Table, theirs: Table, copied: CopiedTable) -> bool:
        """One round: page by page through both. Whether all of it is as it should be."""
        digest, limit, settled = hashlib.sha256(), 1, True
        after: Row | None = None
        copied.rows = 0
        while True:
            rows = self._source.page(ours, after, limit)
            there = self._target.page(theirs, after, limit)
            # Up to the key that both pages reach.
            ends = [page[-1][: ours.width] for page in (rows, there) if len(page) == limit]
            end = min(ends, default=None)
            rows, there = _up_to(rows, end, ours.width), _up_to(there, end, ours.width)
            data, old_data = _encoded(rows), _encoded(there)
            if data != old_data:
                self._write(theirs, rows, there, copied)
                if self._verify:
                    again = _up_to(self._target.page(theirs, after, limit), end, ours.width)
                    settled = settled and _encoded(again) == data
            digest.update(data)
            copied.rows += len(rows)
            self._show(ours.name, len(rows))
            if end is None:
                copied.sha256 = digest.hexdigest()
                return settled
            after = end
            fitting = _PAGE_BYTES * (len(rows) + len(there)) // (len(data) + len(old_data))
            limit = max(1, min(_PAGE_ROWS, 2 * limit, fitting))

    def _write(
        self, table: Table, rows: Sequence[Row], there: Sequence[Row], copied: CopiedTable
    ) -> None:
        """Make a page of the target like that of the source."""
        width = table.width
        wanted = {row[:width]: row for row in rows}
        old = {row[:width]: row for row in there}
        gone = [key for key, row in old.items() if wanted.get(key) != row]
        new = [row for key, row in wanted.items() if old.get(key) != row]
        self._target.change(table, gone, new)
        copied.deleted += len(gone)
        copied.written += len(new)

    def _show(self, name: str, count: int) -> None:
        self._done += count
        if (now := clock.monotonic()) >= self._next_deadline:
            self._next_deadline = now + _DRAW_S
            self._draw(min(1.0, self._done / max(1, self._total)), f"{self._done:,} rows, {name}")


def _up_to(rows: list[Row], end: Row | None, width: int) -> list[Row]:
    """The rows of a page whose key is not after `end`; None: all."""
    if end is None or (rows and rows[-1][:width] <= end):
        return rows
    return [row for row in rows if row[:width] <= end]


def _encoded(rows: Sequence[Row]) -> bytes:
    return b"".join(map(_encode, rows))


def _is_moved_to(mark: MigrationId, target: Side) -> bool:
    return mark.component == MOVED and mark.name.startswith(f"{target.name} at ")


def _finish(source: Side, target: Side, tables: Sequence[Table]) -> None:
    """Make the target a store like any other, and the source one on which no service starts."""
    [(again,)] = target.fetch(f"SELECT again FROM {_STATE}")
    with target.transaction():
        for table, column, events in _POSITIONS:
            last = f"(SELECT coalesce(max(position), 0) FROM {events})"
            target.fetch(f"UPDATE {table} SET {column} = {last} WHERE {column} > {last}")
        target.settle(tables)
        for statement in json.loads(again):
            target.run_script(f"{statement};")
        mark = (COPYING.component, COPYING.number)
        target.fetch("DELETE FROM migration WHERE component = ? AND number = ?", mark)
        target.run_script(f"DROP TABLE {_STATE};")
        _await_unused(source)  # nobody can write meanwhile
        now_us = clock.now_us()
        _unmark(source)
        at = f"{clock.from_us(now_us):%Y-%m-%d %H:%M} UTC"
        source.record(MigrationId(MOVED, 0, f"{target.name} at {at}"), now_us)
        source.unlock()
        try:  # one that came before the mark found none, writes now, and may be gone soon
            source.require_unused()
        except BaseException:
            _unmark(source)
            raise


def _unmark(source: Side) -> None:
    """Let services start on a store again."""
    source.fetch("DELETE FROM migration WHERE component = ?", (MOVED,))
