"""Makes a backlog in a store, by a statement of its own."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import psycopg
from tests.integration.engine.stores import url_of

#: A statement that begins so has rows numbered from 1 to `count`.
_NUMBERS = {
    "postgres": "WITH numbers AS (SELECT n::bigint FROM generate_series(1, {count}) AS n) ",
    "sqlite": "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers"
    " WHERE n < {count}) ",
}
_GROUP = """INSERT INTO consumer_group ("group", type, since, registered_at, present_at)
VALUES ('{group}', 'a', 0, 0, 1000)"""
_MESSAGES = """INSERT INTO message
(event_id, "group", position, key, priority, state, next_at, owner, claim, attempts, suspect,
 dead_at)
SELECT '{group}-{state}-' || n, '{group}', n, {key}, 0, '{state}', 1000 + n, 'me', n, n % 2,
       {suspect}, n
FROM numbers"""
_MAILS = """INSERT INTO mail (message_id, "to", subject, text, next_at, created_at)
SELECT 'm' || n, '[]', 's', 't', n, 2000 + n FROM numbers"""


def fill(
    state: Path,
    count: int,
    *,
    group: str = "g",
    of: str = "ready",
    keyed: bool = False,
    suspect: bool = False,
) -> None:
    """Add a group and `count` messages, due at 1.001 ms, 1.002 ms ... after the epoch; every second
    one has failed before.
    """
    key = "'k' || (n % 100)" if keyed else "NULL"
    messages = _MESSAGES.format(group=group, state=of, key=key, suspect=suspect)
    _execute(state, [_GROUP.format(group=group), "numbers" + messages], count)


def fill_mail(state: Path, count: int) -> None:
    """Add `count` mails, written at 2.001 ms, 2.002 ms ... after the epoch."""
    _execute(state, ["numbers" + _MAILS], count)


def _execute(state: Path, statements: list[str], count: int) -> None:
    url = url_of(state)
    kind = "sqlite" if url == "sqlite:" else "postgres"
    numbers = _NUMBERS[kind].format(count=count)
    whole = [
        numbers + one.removeprefix("numbers") if one.startswith("numbers") else one
        for one in statements
    ]
    if kind == "sqlite":
        connection = sqlite3.connect(state / "cordata.db")
        for one in whole:
            connection.execute(one)
        connection.commit()
        connection.close()
        return
    with psycopg.connect(url, autocommit=True) as server:
        for one in whole:
            server.execute(one.encode())
        server.execute("VACUUM (ANALYZE) message, mail")
