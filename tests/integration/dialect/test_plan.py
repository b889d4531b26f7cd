"""What runs all the time stays on small indexes, whatever the history: plans on a long table."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from tests.integration.dialect.database import (
    Database,
    buffers,
    connect,
    explain,
    explain_prepared,
    prepare,
)
from tests.servers.postgres import PostgresServer

from cordata import clock

HISTORY = 200_000
WAITING = 3000
NOW = clock.now_us()


def id_of(position: int) -> str:
    """The id of the event at a position."""
    return f"{position:032x}"


_IDS = [id_of(n) for n in range(HISTORY + 1, HISTORY + 101)]
_PARAMS: dict[str, object] = {
    "after": HISTORY // 2,
    "before": 1000,
    "claim": 7,
    "created_at": NOW,
    "due_at": NOW,
    "event_id": id_of(HISTORY + 3),
    "event_ids": json.dumps(_IDS),
    "group": "g",
    "groups": json.dumps(["g", "k", "other"]),
    "headers": "{}",
    "key": None,
    "count": 10,
    "run": 10,
    "after_position": -1,
    "history": None,
    "limit": 100,
    "next_at": NOW,
    "now_us": NOW,
    "owner": "me",
    "payload": "{}",
    "priority": 0,
    "settled": json.dumps([{"event_id": one, "group": "g", "claim": 7} for one in _IDS]),
    "suspect": False,
    "type": "a",
    "uncounted": 0,
    "keyed": json.dumps(["k", "other"]),
    "limits": json.dumps([{"group": "g", "least": 0, "most": 2**31 - 1, "count": 100}]),
}
_OWN: dict[str, dict[str, object]] = {
    "queue.publish": {"event_id": "new"},
    "queue.claim_keys": {"group": "k", "after": ""},
    "retention.page": {"after": HISTORY * 3 // 4, "before": NOW},  # old, and handled by all
}
#: Of each: shared buffers that it may touch at most, with a hundred rows in hand.
_HOT = {
    "queue.publish": 60,
    "queue.claim_all": 3000,
    "queue.claim_keys": 2500,
    "queue.claim_suspect": 100,
    "queue.promote": 2000,
    "queue.next": 100,
    "queue.done": 3000,
    "queue.delete": 100,
    "queue.has_claim": 20,
    "queue.has_handled": 20,
    "queue.retry": 60,
    "queue.make_dead": 60,
    "queue.give_back": 60,
    "queue.held": 500,
    "queue.owners": 500,
    "retention.page": 3000,
    "inspection.position": 20,
    "inspection.whole": 20,
    "mail.due": 10,
    "mail.next_at": 10,
}


@pytest.fixture(scope="module")
def long_table(postgres: PostgresServer) -> Iterator[Database]:
    """Many events that are handled, a few that wait, some in the hands of `me`."""
    with postgres.database() as url, connect(url) as connection:
        connection.execute(_fill().encode())
        connection.execute("VACUUM (ANALYZE) event, handled, message, mail, redis_sent")
        yield connection


def _fill() -> str:
    ends = f"{HISTORY + WAITING}"
    return f"""
        INSERT INTO event (id, type, payload, due_at, created_at)
        SELECT lpad(to_hex(n), 32, '0'), 'a', repeat('x', 100), n, n
        FROM generate_series(1, {ends}) AS n;
        INSERT INTO handled (event_id, "group", attempts, handled_at)
        SELECT lpad(to_hex(n), 32, '0'), 'g', 1, n FROM generate_series(1, {HISTORY}) AS n;
        INSERT INTO redis_sent (type, entry, event_id)
        SELECT 'a', n, lpad(to_hex(n), 32, '0') FROM generate_series(1, {HISTORY // 10}) AS n;
        INSERT INTO mail (message_id, "to", subject, text, state, next_at, created_at)
        SELECT n, '[]', '', '', CASE WHEN n % 1000 = 0 THEN 'pending' ELSE 'sent' END, n, n
        FROM generate_series(1, {HISTORY // 10}) AS n;
        INSERT INTO consumer_group ("group", type, keyed, since, registered_at, present_at)
        VALUES ('g', 'a', false, 0, 0, 0), ('k', 'a', true, 0, 0, 0);
        INSERT INTO message
            (event_id, "group", position, state, priority, next_at, owner, claim, attempts)
        SELECT lpad(to_hex(n), 32, '0'), 'g', n,
               CASE n % 3 WHEN 0 THEN 'claimed' WHEN 1 THEN 'ready' ELSE 'scheduled' END, 0, n,
               CASE WHEN n % 3 = 0 THEN 'me' END, CASE WHEN n % 3 = 0 THEN 7 END, 1
        FROM generate_series({HISTORY} + 1, {ends}) AS n;
        INSERT INTO message (event_id, "group", position, key, state, priority, next_at)
        SELECT lpad(to_hex(n), 32, '0'), 'k', n,
               CASE WHEN n % 3 = 0 THEN 'k' || n % 1000 ELSE 'hot' END, 'ready', 0, n
        FROM generate_series(1, {HISTORY // 2}) AS n"""


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("name", sorted(_HOT))
def test_query_stays_on_small_indexes_when_history_is_long(
    long_table: Database, name: str, mode: str
) -> None:
    text = explain(long_table, name, params_of(name), mode)
    tables = "event|handled|mail|message|redis_sent"
    assert not re.search(rf"Seq Scan on ({tables})\b[^\n]*\(actual", text), text
    assert buffers(text) <= _HOT[name], text


def test_plan_stays_when_it_was_made_while_the_tables_were_empty(database: str) -> None:
    """The server keeps a plan for a connection's life: the one it made at the first start."""
    # Those that change least come first: what is taken back is in the way of the next one.
    names = ("queue.delete", "queue.done", "queue.claim_keys", "queue.claim_all")
    with connect(database) as connection:
        connection.execute("SET enable_seqscan = off")  # as every transaction that writes
        for name in names:
            prepare(connection, name)
            explain_prepared(connection, name, params_of(name), "force_generic_plan")
        connection.execute(_fill().encode())  # and no ANALYZE has run yet
        for name in names:
            text = explain_prepared(connection, name, params_of(name), "force_generic_plan")
            assert buffers(text) <= _HOT[name], f"{name}: {text}"


def params_of(name: str) -> dict[str, object]:
    """Of a query."""
    return _PARAMS | _OWN.get(name, {})
