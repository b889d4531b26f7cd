"""What runs all the time stays on small indexes, whatever the history: plans on a long table."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from tests.integration.dialect.database import QUERIES, connect, numbered, plan
from tests.servers.postgres import PostgresServer

from cordata import clock

HISTORY = 200_000
WAITING = 3000
NOW = clock.now_us()

Database = psycopg.Connection[dict[str, Any]]

_PARAMS: dict[str, object] = {
    "after": HISTORY // 2,
    "after_group": "",
    "before": 1000,
    "claimed_until": NOW,
    "dead": json.dumps(["nobody"]),
    "dead_at": NOW,
    "entries": json.dumps([[HISTORY + 1, NOW, "Refused"]]),
    "event_id": f"{7:032x}",
    "event_ids": json.dumps([f"{n:032x}" for n in range(1, 101)]),
    "floor": HISTORY // 2 - 5000,
    "group": "g",
    "groups": json.dumps(["g", "k", "other"]),
    "here": json.dumps(["g"]),
    "heads": json.dumps([["hot", 0], ["k7", 0], ["k8", 0]]),
    "history": None,
    "id": HISTORY + 1,
    "ids": json.dumps(list(range(HISTORY + 1, HISTORY + 101))),
    "attempts": 1,
    "keyed": 0,
    "keys": json.dumps(["hot", "k7", "k8", "none"]),
    "lane": "live",
    "limit": 100,
    "not_before": NOW,
    "run": 10,
    "max_attempts": 5,
    "mine": json.dumps(list(range(HISTORY + 1, HISTORY + 51))),
    "next_at": NOW,
    "now_us": NOW,
    "outbox_id": 2**62,
    "owner": "me",
    "whole": True,
    "priority": 0,
    "type": None,
}
_OWN: dict[str, dict[str, object]] = {
    "retention.seen_end": {"before": HISTORY, "limit": 200},
    "retention.seen": {"end": HISTORY // 2 + 200},
}
#: Of each: shared buffers that it may touch at most, with a hundred rows in hand.
_HOT = {
    "outbox.levels": 30,
    "outbox.due": 500,
    "outbox.claim": 3000,
    "outbox.claim_these": 3000,
    "outbox.ahead": 1000,
    "outbox.take": 1000,
    "outbox.again": 100,
    "outbox.give_back": 1000,
    "outbox.owners": 10,
    "outbox.reclaim": 10,
    "outbox.mark_published": 4000,
    "stream.levels": 30,
    "stream.due": 1500,
    "stream.claim": 3000,
    "stream.done": 1000,
    "stream.give_back": 3000,
    "stream.again": 60,
    "stream.bury": 60,
    "stream.mark_seen": 2000,
    "stream.renew": 20_000,  # all of an owner: a thousand
    "stream.owners": 30,
    "stream.held": 500,
    "stream.depth": 20,
    "stream.fan_out": 6000,
    "stream.fan_out_here": 7000,
    "stream.keys_of": 1000,
    "stream.step_back": 100,
    "stream.promote": 200,
    "stream.followers": 300,
    "stream.stranded": 10_000,  # a handful for each of 1000 keys
    "seen.has": 10,
    "mail.due": 10,
    "mail.next_at": 10,
    "retention.outbox_page": 1000,
    "retention.seen_end": 500,
    "retention.seen": 2000,  # two hundred, each looked up in the outbox
    "inspection.entry": 20,
    "inspection.entry_id": 20,
}


@pytest.fixture(scope="module")
def long_table(postgres: PostgresServer) -> Iterator[Database]:
    """Many published entries and seen-marks, a few that wait, some in the hands of `me`."""
    with postgres.database() as url, connect(url) as connection:
        connection.execute(_fill().encode())
        connection.execute("VACUUM (ANALYZE) outbox, seen, message, mail")
        yield connection


def _fill() -> str:
    ends = f"{HISTORY + WAITING}"
    return f"""
        INSERT INTO outbox (event_id, type, payload, state, next_at, created_at, published_at)
        SELECT lpad(to_hex(n), 32, '0'), 'a', repeat('x', 100),
               CASE WHEN n <= {HISTORY} THEN 'published' ELSE 'pending' END, n, n,
               CASE WHEN n <= {HISTORY} THEN n END
        FROM generate_series(1, {ends}) AS n;
        INSERT INTO seen SELECT lpad(to_hex(n), 32, '0'), 'g', n
        FROM generate_series(1, {HISTORY}) AS n;
        INSERT INTO mail (message_id, "to", subject, text, state, next_at, created_at)
        SELECT n, '[]', '', '', CASE WHEN n % 1000 = 0 THEN 'pending' ELSE 'sent' END, n, n
        FROM generate_series(1, {HISTORY // 10}) AS n;
        INSERT INTO consumer_group ("group", type, registered_at, refreshed_at)
        VALUES ('g', 'a', 0, 0);
        INSERT INTO message (outbox_id, "group", state, priority, next_at, owner, claimed_until)
        SELECT n, 'g', CASE WHEN n % 3 = 0 THEN 'claimed' ELSE 'ready' END, 0, n,
               CASE WHEN n % 3 = 0 THEN 'me' END, CASE WHEN n % 3 = 0 THEN {NOW} END
        FROM generate_series({HISTORY} + 1, {ends}) AS n;
        INSERT INTO message (outbox_id, "group", key, state, priority, next_at)
        SELECT n, 'k', CASE WHEN n % 3 = 0 THEN 'k' || n % 1000 ELSE 'hot' END, 'waiting', 0, n
        FROM generate_series(1, {HISTORY // 2}) AS n"""


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("name", sorted(_HOT))
def test_query_stays_on_small_indexes_when_history_is_long(
    long_table: Database, name: str, mode: str
) -> None:
    long_table.execute(f"SET plan_cache_mode = {mode}".encode())
    text = plan(long_table, name, params_of(name))
    assert not re.search(r"Seq Scan on (outbox|seen|mail)", text), text
    touched = re.search(r"Buffers: shared ([^\n]*)", text)
    assert touched is not None, text
    count = sum(map(int, re.findall(r"(?:hit|read)=(\d+)", touched[1])))
    assert count <= _HOT[name], text


def params_of(name: str) -> dict[str, object]:
    """Of a query; that of keys asks for the group that has them."""
    names = QUERIES["postgres"][name].params
    keyed = {"group": "k"} if {"keys", "heads"} & set(names) else {}
    return {param: (_PARAMS | keyed | _OWN.get(name, {}))[param] for param in names}


@pytest.mark.parametrize("name", ["stream.step_back", "stream.promote", "stream.followers"])
def test_long_queue_of_a_key_costs_nothing_when_nobody_has_counted_it(
    database: str, name: str
) -> None:
    """Prepared while the table was empty, run on a hundred thousand of one key."""
    query, params = QUERIES["postgres"][name], params_of(name)
    values = ", ".join(f"'{params[p]}'" for p in query.params)
    with connect(database) as connection:
        connection.execute("SET plan_cache_mode = force_generic_plan")
        connection.execute(f"PREPARE looked_at AS {numbered(query)}".encode())
        connection.execute(f"EXECUTE looked_at ({values})".encode())
        connection.execute(_fill().encode())
        rows = connection.execute(
            f"EXPLAIN (ANALYZE, BUFFERS, COSTS off) EXECUTE looked_at ({values})".encode()
        ).fetchall()
    text = "\n".join(row["QUERY PLAN"] for row in rows)
    touched = re.search(r"Buffers: shared ([^\n]*)", text)
    assert touched is not None, text
    assert sum(map(int, re.findall(r"(?:hit|read)=(\d+)", touched[1]))) <= 500, text


def test_plan_stays_when_it_was_made_while_the_table_was_empty(database: str) -> None:
    """The server keeps a plan for a connection's life: the one it made at the first start."""
    params = {"priority": 0, "now_us": NOW, "limit": 100, "lane": "live", "whole": True}
    query = QUERIES["postgres"]["outbox.due"]
    values = ", ".join(repr(params[param]) for param in query.params)
    with connect(database) as connection:
        connection.execute("SET plan_cache_mode = force_generic_plan")
        connection.execute(f"PREPARE due AS {numbered(query)}".encode())
        connection.execute(f"EXECUTE due({values})".encode())
        connection.execute(_fill().encode())  # and no ANALYZE has run yet
        rows = connection.execute(f"EXPLAIN EXECUTE due({values})".encode()).fetchall()
    assert "outbox_pending" in "\n".join(row["QUERY PLAN"] for row in rows)
