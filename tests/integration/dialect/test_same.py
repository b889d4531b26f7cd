"""PostgreSQL has the tables and the answers that SQLite has."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import psycopg
import pytest
from tests.integration.dialect.database import QUERIES, connect, embedded, numbered
from tests.servers.postgres import PostgresServer

#: On SQLite `queue.claimed` reads what these have claimed.
APART = {"queue.claim_keys", "queue.claim_suspect"}
SHARED = sorted((QUERIES["postgres"].keys() & QUERIES["sqlite"].keys()) - APART)


def test_tables_and_columns_are_the_same(database: str) -> None:
    with connect(database) as connection:
        found = connection.execute(
            "SELECT table_name, column_name, is_nullable = 'NO' AS needed"
            " FROM information_schema.columns WHERE table_schema = 'public'"
        ).fetchall()
    ours = {(row["table_name"], row["column_name"]): row["needed"] for row in found}
    with closing(embedded()) as other:
        tables = [row[0] for row in other.execute("SELECT name FROM pragma_table_list")]
        theirs = {
            (table, name): bool(needed) or bool(key)
            for table in tables
            if not table.startswith("sqlite_")
            for _, name, _, needed, _, key in other.execute(f"PRAGMA table_info({table})")
        }
    assert ours == theirs


def test_indexes_have_the_same_names(database: str) -> None:
    with connect(database) as connection:
        found = connection.execute(
            "SELECT indexname AS name FROM pg_indexes WHERE schemaname = 'public'"
            " AND indexname NOT IN (SELECT conname FROM pg_constraint)"
        ).fetchall()
    with closing(embedded()) as other:
        named = other.execute("SELECT name FROM sqlite_schema WHERE type = 'index' AND sql <> ''")
        theirs = {row[0] for row in named}
    assert {row["name"] for row in found} == theirs


def test_text_is_compared_byte_by_byte_when_it_is_indexed(database: str) -> None:
    with connect(database) as connection:
        found = connection.execute(
            "SELECT DISTINCT c.relname AS name, l.collname AS collation"
            " FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid"
            " CROSS JOIN unnest(i.indcollation) AS used (oid)"
            " JOIN pg_collation AS l ON l.oid = used.oid"
            " JOIN pg_namespace AS n ON n.oid = c.relnamespace AND n.nspname = 'public'"
        ).fetchall()
    others = {row["name"] for row in found if row["collation"] != "C"}
    assert others <= {"migration_pkey", "lease_pkey"}  # a handful of rows, looked up whole


@pytest.fixture(scope="module")
def connection(postgres: PostgresServer) -> Iterator[psycopg.Connection[dict[str, Any]]]:
    """One database for all queries: they are only described."""
    with postgres.database() as url, connect(url) as connection:
        yield connection


@pytest.mark.parametrize("name", SHARED)
def test_query_is_understood_and_gives_the_same_columns(
    connection: psycopg.Connection[dict[str, Any]], name: str
) -> None:
    theirs = QUERIES["sqlite"][name]
    with closing(embedded()) as other:
        columns: list[str] = []
        with suppress(sqlite3.IntegrityError):  # of a write, which gives none
            cursor = other.execute(theirs.sql, theirs.bind(dict.fromkeys(theirs.params, 0)))
            columns = [column[0] for column in cursor.description or ()]
    ours = described(connection, name)
    assert len(ours) == len(columns)
    assert ours == columns or columns == ["1"]  # a row or none: nobody reads it


def described(connection: psycopg.Connection[dict[str, Any]], name: str) -> list[str]:
    """The columns of a statement, as the server understands it."""
    prepared = connection.pgconn.prepare(b"", numbered(QUERIES["postgres"][name]).encode())
    assert prepared.status == psycopg.pq.ExecStatus.COMMAND_OK, prepared.error_message.decode()
    result = connection.pgconn.describe_prepared(b"")
    return [(result.fname(n) or b"").decode() for n in range(result.nfields)]
