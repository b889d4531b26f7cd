"""The runtime's tables in real databases, without a store around them."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg.rows import dict_row

from cordata.store import Queries
from cordata.store.migrate import RUNTIME, bootstrap_script, load
from cordata.store.queries import Query

QUERIES = {dialect: Queries.load([], dialect).by_name for dialect in ("postgres", "sqlite")}
Rows = list[dict[str, Any]]


def scripts(dialect: str) -> list[str]:
    """What makes an empty database one of the runtime's."""
    return [bootstrap_script(dialect), *(m.script for m in load([RUNTIME], dialect))]


def embedded() -> sqlite3.Connection:
    """An SQLite database in memory."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    for script in scripts("sqlite"):
        connection.executescript(script)
    return connection


def connect(url: str, *, fresh: bool = True) -> psycopg.Connection[dict[str, Any]]:
    """A database of PostgreSQL, in autocommit; `fresh` ones get their tables."""
    connection = psycopg.connect(url, autocommit=True, row_factory=dict_row)
    if fresh:
        for script in scripts("postgres"):
            connection.execute(script.encode())
    return connection


def numbered(query: Query) -> str:
    """The statement with `$1`, `$2`, ... in the order of `query.params`."""
    if "?" not in query.sql:
        return query.sql
    numbers = {name: f"${n}" for n, name in enumerate(query.params, 1)}
    marks = iter(query.bind(numbers))
    return re.sub(r"\?", lambda _: str(next(marks)), query.sql)


def run(
    connection: psycopg.Connection[dict[str, Any]], name: str, **params: object
) -> tuple[Rows, int]:
    """One named statement: its rows, and how many it changed or found."""
    query = QUERIES["postgres"][name]
    assert set(params) == set(query.params), name
    with psycopg.RawCursor(connection, row_factory=dict_row) as cursor:
        cursor.execute(numbered(query).encode(), [params[p] for p in query.params])
        return (cursor.fetchall() if cursor.description else []), cursor.rowcount


def plan(
    connection: psycopg.Connection[dict[str, Any]], name: str, params: Mapping[str, object]
) -> str:
    """What the server would do for one, and did: EXPLAIN ANALYZE of its prepared form."""
    query = QUERIES["postgres"][name]
    values = ", ".join(
        "NULL" if (v := params[p]) is None else f"'{v}'" if isinstance(v, str) else str(v)
        for p in query.params
    )
    with connection.transaction(force_rollback=True):
        connection.execute(f"PREPARE looked_at AS {numbered(query)}".encode())
        arguments = f"({values})" if values else ""
        rows = connection.execute(
            f"EXPLAIN (ANALYZE, BUFFERS, COSTS off) EXECUTE looked_at{arguments}".encode()
        ).fetchall()
        connection.execute("DEALLOCATE looked_at")
    return "\n".join(row["QUERY PLAN"] for row in rows)
