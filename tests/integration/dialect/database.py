"""The tables of the runtime and the hub in real databases, without a store around them."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg.rows import dict_row
from tests.queries import queries_of

from alpinehub.app import app
from cordata.context_factory import chains_of
from cordata.store.migrate import bootstrap_script, load

QUERIES = {
    dialect: queries_of(dialect, *app.query_packages).by_name for dialect in ("postgres", "sqlite")
}
Rows = list[dict[str, Any]]
Database = psycopg.Connection[dict[str, Any]]


def scripts(dialect: str) -> list[str]:
    """What makes an empty database one of the hub's."""
    return [bootstrap_script(dialect), *(m.script for m in load(chains_of(app), dialect))]


def embedded() -> sqlite3.Connection:
    """An SQLite database in memory."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    for script in scripts("sqlite"):
        connection.executescript(script)
    return connection


def connect(url: str, *, fresh: bool = True) -> Database:
    """A database of PostgreSQL, in autocommit; `fresh` ones get their tables."""
    connection = psycopg.connect(url, autocommit=True, row_factory=dict_row)
    if fresh:
        for script in scripts("postgres"):
            connection.execute(script.encode())
    return connection


def run(connection: Database, name: str, **params: object) -> tuple[Rows, int]:
    """One named statement: its rows, and how many it changed or found."""
    query = QUERIES["postgres"][name]
    assert set(params) == set(query.params), name
    with psycopg.RawCursor(connection, row_factory=dict_row) as cursor:
        cursor.execute(query.sql.encode(), [params[p] for p in query.params])
        return (cursor.fetchall() if cursor.description else []), cursor.rowcount


def prepare(connection: Database, name: str) -> None:
    """Prepare a named statement under its name."""
    connection.execute(f'PREPARE "{name}" AS {QUERIES["postgres"][name].sql}'.encode())


def explain(connection: Database, name: str, params: Mapping[str, object], mode: str) -> str:
    """What the server does for one, and did: EXPLAIN ANALYZE of its prepared form.

    `mode`: the plan_cache_mode. What it changed is taken back.
    """
    prepare(connection, name)
    try:
        return explain_prepared(connection, name, params, mode)
    finally:
        connection.execute(f'DEALLOCATE "{name}"'.encode())


def explain_prepared(
    connection: Database, name: str, params: Mapping[str, object], mode: str
) -> str:
    """The same of a statement that was prepared before."""
    values = ", ".join(
        "NULL" if (v := params[p]) is None else f"'{v}'" if isinstance(v, str) else str(v)
        for p in QUERIES["postgres"][name].params
    )
    execute = f'EXECUTE "{name}"({values})' if values else f'EXECUTE "{name}"'
    with connection.transaction(force_rollback=True):
        connection.execute(f"SET LOCAL plan_cache_mode = {mode}".encode())
        explained = f"EXPLAIN (ANALYZE, BUFFERS, COSTS off) {execute}"
        rows = connection.execute(explained.encode()).fetchall()
    return "\n".join(row["QUERY PLAN"] for row in rows)


def buffers(text: str) -> int:
    """Shared buffers that the whole statement touched, without its foreign-key checks."""
    found = re.search(r"Buffers: shared ([^\n]*)", text)
    assert found is not None, text
    return sum(map(int, re.findall(r"(?:hit|read)=(\d+)", found[1])))
