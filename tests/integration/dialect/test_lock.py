"""Who works on the same rows at once passes them over, or waits and then sees the truth."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.integration.dialect.database import QUERIES, connect, run
from tests.integration.engine.parts import opened
from tests.integration.engine.stores import use

from cordata import clock
from cordata.broker import StoreBroker, Want

NOW = clock.now_us()
Database = psycopg.Connection[dict[str, Any]]

_PARAMS: dict[str, object] = {
    "again": 0,
    "claimed_until": NOW,
    "group": "g",
    "lane": "live",
    "limit": 4,
    "next_at": NOW,
    "now_us": NOW,
    "owner": "me",
    "whole": True,
}


@pytest.fixture
def two(database: str) -> Iterator[tuple[Database, Database]]:
    """Two sessions; ten entries are pending, ten published and in the hands of nobody."""
    with ExitStack() as stack:
        one = stack.enter_context(connect(database))
        other = stack.enter_context(connect(database, fresh=False))
        other.execute("SET lock_timeout = '5s'")
        one.execute(
            "INSERT INTO outbox (event_id, type, payload, state, next_at, created_at, published_at)"
            " SELECT n, 'a', '{}', CASE WHEN n <= 10 THEN 'published' ELSE 'pending' END, n, n, 0"
            " FROM generate_series(1, 20) AS n"
        )
        one.execute(
            'INSERT INTO consumer_group ("group", type, registered_at, refreshed_at)'
            " VALUES ('g', 'a', 0, 0)"
        )
        yield one, other


def ask(connection: Database, name: str, **more: object) -> tuple[list[dict[str, Any]], int]:
    """A statement with what it needs."""
    params = {**_PARAMS, **more}
    return run(connection, name, **{p: params[p] for p in QUERIES["postgres"][name].params})


@pytest.mark.parametrize("name", ["outbox.due", "outbox.claim"])
def test_relay_takes_the_next_entries_when_another_has_the_first(
    two: tuple[Database, Database], name: str
) -> None:
    one, other = two
    other.execute("SET lock_timeout = '1ms'")
    with one.transaction(), other.transaction():
        first, second = ask(one, name)[0], ask(other, name)[0]
    assert sorted(row["id"] for row in first) == [11, 12, 13, 14]
    assert sorted(row["id"] for row in second) == [15, 16, 17, 18]


def test_worker_takes_the_next_messages_when_another_has_the_first(
    two: tuple[Database, Database],
) -> None:
    one, other = two
    ask(one, "stream.fan_out", ids=json.dumps(list(range(1, 11))))
    other.execute("SET lock_timeout = '1ms'")
    with one.transaction(), other.transaction():
        first, second = ask(one, "stream.due")[0], ask(other, "stream.due")[0]
    assert [row["outbox_id"] for row in first] == [1, 2, 3, 4]
    assert [row["outbox_id"] for row in second] == [5, 6, 7, 8]


async def test_nobody_tries_again_at_once_when_all_that_is_due_is_in_other_hands(
    two: tuple[Database, Database], database: str, tmp_path: Path
) -> None:
    one, _ = two
    ask(one, "stream.fan_out", ids=json.dumps(list(range(1, 11))))
    use(tmp_path, database)
    wanted = {"g": Want(live=100)}
    async with opened(tmp_path, migrate=False) as store:
        broker = StoreBroker(store, claim_timeout_s=60.0)
        with one.transaction():
            ask(one, "outbox.due", limit=10)
            ask(one, "stream.due", limit=10)
            before = store.now_us()
            relayed = await broker.relay(100)
            claimed = await broker.exchange("me", [], wanted)
            assert (relayed.published, claimed.messages) == (0, [])
            assert relayed.next_at is not None and relayed.next_at > before + 10_000
            at = claimed.next_at["g"].live
            assert at is not None and at > before + 10_000
        assert (await broker.relay(100)).published == 10
        assert len((await broker.exchange("me", [], wanted)).messages) == 20


def test_entry_that_is_published_again_at_this_moment_is_not_deleted(
    two: tuple[Database, Database],
) -> None:
    one, other = two
    other.execute("SET lock_timeout = '1ms'")
    with one.transaction():
        assert ask(one, "inspection.publish_again", ids="[3, 4]")[1] == 2
        assert ask(other, "retention.outbox", ids="[1, 2, 3, 4, 5]")[1] == 3
    assert ask(other, "retention.outbox", ids="[1, 2, 3, 4, 5]")[1] == 0


def test_entry_that_is_deleted_at_this_moment_is_not_published_again(
    two: tuple[Database, Database],
) -> None:
    one, other = two
    counts: list[int] = []
    asking = threading.Thread(
        target=lambda: counts.append(ask(other, "inspection.publish_again", ids="[3, 4, 5]")[1])
    )
    with one.transaction():
        assert ask(one, "retention.outbox", ids="[3, 4]")[1] == 2
        asking.start()
        asking.join(0.2)
        assert asking.is_alive()  # it waits to learn whether they are gone
    asking.join(10)
    assert counts == [1]
