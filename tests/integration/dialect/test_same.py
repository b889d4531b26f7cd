"""PostgreSQL has the tables and the answers that SQLite has."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest
from tests.integration.dialect.database import QUERIES, Database, connect, embedded
from tests.servers.postgres import PostgresServer

#: On SQLite `queue.claimed` reads what these have claimed.
APART = {"queue.claim_keys", "queue.claim_suspect"}
#: CREATE, which tests/integration/postgres runs.
NOT_PREPARED = {"store.probe"}


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
            for _, name, _, needed, _, key, _ in other.execute(f"PRAGMA table_xinfo({table})")
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
    # A handful of rows, looked up whole; and words of our own.
    assert others <= {"migration_pkey", "lease_pkey"}


@pytest.fixture(scope="module")
def two(postgres: PostgresServer) -> Iterator[tuple[Database, sqlite3.Connection]]:
    """A database of each kind for all queries: they change nothing."""
    with postgres.database() as url, connect(url) as connection, closing(embedded()) as other:
        yield connection, other


@pytest.mark.parametrize("name", sorted(QUERIES["postgres"].keys() - NOT_PREPARED))
def test_query_is_understood_and_gives_the_same_columns(
    two: tuple[Database, sqlite3.Connection], name: str
) -> None:
    connection, other = two
    ours = described(connection, name)
    theirs = QUERIES["sqlite"].get(name)
    if theirs is None or name in APART:
        return
    other.execute("BEGIN")
    try:
        cursor = other.execute(theirs.sql, theirs.values(dict.fromkeys(theirs.params, 0)))
        columns = [column[0] for column in cursor.description or ()]
    except sqlite3.IntegrityError:  # of a write, whose columns it does not tell then
        columns = ours if "RETURNING" in theirs.sql else []
    other.execute("ROLLBACK")
    assert len(ours) == len(columns)
    assert ours == columns or columns == ["1"]  # a row or none: nobody reads it


def described(connection: Database, name: str) -> list[str]:
    """The columns of a statement, as the server understands it."""
    prepared = connection.pgconn.prepare(b"", QUERIES["postgres"][name].sql.encode())
    assert prepared.status == psycopg.pq.ExecStatus.COMMAND_OK, prepared.error_message.decode()
    result = connection.pgconn.describe_prepared(b"")
    return [(result.fname(n) or b"").decode() for n in range(result.nfields)]
