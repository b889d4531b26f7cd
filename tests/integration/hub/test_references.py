"""The foreign keys of the hub's tables, on both stores."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing

import psycopg
from tests.queries import queries_of
from tests.servers.postgres import PostgresServer

from alpinehub.app import app
from cordata.context_factory import chains_of
from cordata.store.migrate import bootstrap_script, load

#: What PostgreSQL leaves unchecked, since nothing can break it (0001_hub.sql): rows that come with
#: what hotel software and guests do.
UNCHECKED = {
    ("activity", "hotel_id"),
    ("contact", "hotel_id"),
    ("contact", "account_id"),
    ("customer", "hotel_id"),
    ("delivery", "hotel_id"),
    ("delivery", "reservation_id"),
    ("delivery", "account_id"),
    ("handshake", "account_id"),
    ("hotel_document", "hotel_id"),
    ("hotel_document", "account_id"),
    ("inbox", "reservation_id"),
    ("inbound_message", "hotel_id"),
    ("inbound_message", "account_id"),
    ("push_hotel", "hotel_id"),
    ("push_hotel", "account_id"),
    ("push_target", "account_id"),
    ("rate_plan", "hotel_id"),
    ("reservation", "hotel_id"),
    ("reservation", "source_id"),
    ("reservation_event", "account_id"),
    ("reservation_event", "reservation_id"),
    ("reservation_version", "reservation_id"),
}


def scripts(dialect: str) -> list[str]:
    return [bootstrap_script(dialect), *(m.script for m in load(chains_of(app), dialect))]


def test_both_stores_check_the_references_that_something_could_break(
    postgres: PostgresServer,
) -> None:
    with closing(sqlite3.connect(":memory:")) as embedded:
        for script in scripts("sqlite"):
            embedded.executescript(script)
        tables = embedded.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        ours = {
            (table, key[3])
            for (table,) in tables
            for key in embedded.execute(f"PRAGMA foreign_key_list({table})")
        }
    with postgres.database() as url, psycopg.connect(url) as connection:
        for script in scripts("postgres"):
            connection.execute(script.encode())
        theirs = connection.execute(
            "SELECT c.conrelid::regclass::text, a.attname FROM pg_constraint AS c"
            " JOIN pg_attribute AS a ON a.attrelid = c.conrelid AND a.attnum = ANY (c.conkey)"
            " WHERE c.contype = 'f'"
        ).fetchall()
    assert ours - set(theirs) == UNCHECKED
    assert set(theirs) < ours


def test_only_what_retention_and_erasure_end_is_ever_deleted_of_what_others_refer_to() -> None:
    """What PostgreSQL does not check is safe because of this. Whatever ends a reservation or a
    customer ends what refers to it in the same unit; see test_retention.py and test_erase.py.
    """
    with closing(sqlite3.connect(":memory:")) as embedded:
        for script in scripts("sqlite"):
            embedded.executescript(script)
        parents = {
            key[2]
            for table in {table for table, _ in UNCHECKED}
            for key in embedded.execute(f"PRAGMA foreign_key_list({table})")
            if (table, key[3]) in UNCHECKED
        }
    assert parents == {"hotel", "account", "reservation", "source"}
    for dialect in ("sqlite", "postgres"):
        deleting = {
            name: table[1]
            for name, query in queries_of(dialect, *app.query_packages).by_name.items()
            if (table := re.search(r"DELETE\s+FROM\s+(\w+)", query.sql)) and table[1] in parents
        }
        assert deleting == {"retention_delete_requests": "reservation"}
