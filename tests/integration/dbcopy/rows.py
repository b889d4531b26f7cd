"""All rows of a store as plain programs read them, and rows for every table of a schema."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
from tests.integration.backup.places import Place

#: Each has the digests of its own SQL.
_OWN = ("migration",)
#: Order, escapes, and what looks like syntax.
_TEXTS = (
    "",
    "Z",
    "a",
    "ä",
    "~",
    "\U0001f600",
    "NULL",
    '{"x"}',
    "back\\slash",
    "it's\n\t\x01",
    "%s ?",
)
#: Values that a CHECK allows, or that are true or false; other integers are counted up.
_VALUES: dict[str, tuple[Any, ...]] = {
    "job_run.state": ("running", "done", "failed"),
    "message.state": ("ready", "scheduled", "claimed", "dead"),
    "mail.state": ("pending", "sending", "sent", "failed"),
    "consumer_group.broker": ("store", "redis"),
    "reservation.status": ("request", "reservation", "cancelled"),
    "reservation_version.res_status": ("Requested", "Reserved", "Modify", "Cancelled"),
    "inbox.state": ("mapped", "review", "rejected"),
    "hotel_document.kind": ("freerooms", "inventory", "info"),
    "hotel_hour.kind": ("duplicate", "test", "error"),
    "inbound_message.outcome": ("success", "advisory", "warning", "error"),
    "delivery.unique_id_type": (14, 15),
    **dict.fromkeys(
        ("delivery.waiting", "delivery.ever_sent", "push_target.gzip", "customer.phone_due"), (0, 1)
    ),
    **dict.fromkeys(("consumer_group.keyed", "message.suspect"), (0, 1)),
}
#: Tables of one row.
_SINGLE = ("directory", "redis_server")


def contents(place: Place) -> dict[str, list[tuple[Any, ...]]]:
    """Every table's rows, in one form on both databases."""
    found = {}
    for table, columns in _columns(place).items():
        if table not in _OWN:
            names = ", ".join(f'"{name}"' for name in columns)
            rows = place.rows(f'SELECT {names} FROM "{table}"')
            found[table] = sorted((tuple(map(_plain, row)) for row in rows), key=repr)
    return found


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, bool) else value


def _columns(place: Place) -> dict[str, list[str]]:
    if place.url:
        sql = """SELECT c.table_name, c.column_name FROM information_schema.columns AS c
            JOIN information_schema.tables AS t USING (table_schema, table_name)
            WHERE c.table_schema = 'public' AND t.table_type = 'BASE TABLE'"""
    else:
        sql = """SELECT t.name, c.name FROM sqlite_schema AS t, pragma_table_xinfo(t.name) AS c
            WHERE t.type = 'table' AND t.name <> 'sqlite_sequence'"""
    found: dict[str, list[str]] = {}
    for table, column in sorted(place.rows(sql)):
        found.setdefault(table, []).append(column)
    return found


def schema(place: Place) -> list[tuple[Any, ...]]:
    """Every object of the schema, as its database describes it."""
    if not place.url:
        return place.rows("SELECT type, name, sql FROM sqlite_schema ORDER BY 1, 2")
    return place.rows(
        """SELECT 'column', table_name, column_name, data_type, column_default, is_generated
            FROM information_schema.columns WHERE table_schema = 'public'
        UNION ALL SELECT 'index', tablename, indexname, indexdef, '', '' FROM pg_indexes
            WHERE schemaname = 'public'
        UNION ALL SELECT 'constraint', conrelid::regclass::text, conname,
            pg_get_constraintdef(oid), convalidated::text, '' FROM pg_constraint
        UNION ALL SELECT 'trigger', tgrelid::regclass::text, tgname, tgenabled::text, '', ''
            FROM pg_trigger WHERE NOT tgisinternal
        ORDER BY 1, 2, 3, 4"""
    )


def fill(place: Place, count: int) -> None:
    """Rows in every table of a SQLite store: nulls, all kinds of text, bytes, large numbers. A row
    of number i points to rows of number i.
    """
    with closing(sqlite3.connect(place.database, isolation_level=None)) as file:
        file.execute("BEGIN")
        # What a trigger would add is not made here.
        triggers = file.execute(
            "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'"
        ).fetchall()
        for name, _ in triggers:
            file.execute(f"DROP TRIGGER {name}")
        tables = file.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name <> 'sqlite_sequence'"
        ).fetchall()
        for (table,) in tables:
            if table in (*_OWN, "lease"):
                continue
            columns = file.execute(
                'SELECT name, type, "notnull", pk FROM pragma_table_xinfo(?) WHERE hidden = 0',
                (table,),
            ).fetchall()
            file.execute(f'DELETE FROM "{table}"')
            names = ", ".join(f'"{name}"' for name, *_ in columns)
            file.executemany(
                f'INSERT INTO "{table}" ({names}) VALUES ({", ".join("?" * len(columns))})',
                _rows(table, columns, 1 if table in _SINGLE else count),
            )
        for _, sql in triggers:
            file.execute(sql)
        assert file.execute("PRAGMA foreign_key_check").fetchall() == []
        file.execute("COMMIT")


def _rows(table: str, columns: list[tuple[str, str, int, int]], count: int) -> Iterator[list[Any]]:
    for i in range(1, count + 1):
        yield [
            None if not (required or key) and i % 3 == 0 else _value(table, name, type_, i)
            for name, type_, required, key in columns
        ]


def _value(table: str, name: str, type_: str, i: int) -> Any:
    if allowed := _VALUES.get(f"{table}.{name}"):
        return allowed[i % len(allowed)]
    if (table, name) == ("reservation", "id") or name == "reservation_id":
        return f"r{i:06}"
    if type_ == "INTEGER":
        return 2**62 + i if name.endswith("_at") else i
    if type_ == "BLOB":
        return bytes((i % 256, 0, 255)) + str(i).encode()
    if type_ == "REAL":
        return i / 3
    return f"{_TEXTS[i % len(_TEXTS)]}{i}"


def next_number(place: Place, table: str, columns: str, values: str) -> int:
    """The number that the database gives to a new row."""
    sql = f"INSERT INTO {table} ({columns}) VALUES ({values}) RETURNING id"
    if place.url:
        with psycopg.connect(place.url) as server:
            row = server.execute(sql.encode()).fetchone()
    else:
        with closing(sqlite3.connect(place.database, isolation_level=None)) as file:
            row = file.execute(sql).fetchone()
    assert row is not None
    return int(row[0])
