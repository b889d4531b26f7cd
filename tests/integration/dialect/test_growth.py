"""Plans follow the tables: what was short when a worker started is long after a while."""

from __future__ import annotations

from pathlib import Path

from tests.integration.dialect.database import connect
from tests.integration.engine.parts import opened, publish, registered
from tests.integration.engine.stores import use
from tests.waiting import until

from cordata.broker import ClaimLimit, Message, Outcome, Queue
from cordata.core.message_state import Verdict
from cordata.store import Store

_HISTORY = b"""
    INSERT INTO event (position, id, type, payload, due_at, created_at)
    SELECT n, n, 'a', repeat('x', 100), n, n FROM generate_series(1001, 51000) AS n;
    INSERT INTO handled SELECT n, 'g', 1, n FROM generate_series(1001, 51000) AS n;
    INSERT INTO message (event_id, "group", position, priority, state, next_at)
    SELECT n, 'k', n, 0, 'ready', 0 FROM generate_series(1001, 21000) AS n;
    SELECT setval('event_position_seq', 60000)"""
_OTHERS = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    " AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
)


async def test_no_table_is_read_through_when_it_has_grown_since_it_was_first_used(
    database: str, tmp_path: Path
) -> None:
    """The server would keep the plan that it made for a connection while there were a few rows."""
    use(tmp_path, database)
    async with opened(tmp_path) as store:
        queue = Queue(store, owner="me", retries={"g": 5})
        await registered(store, {"g": "thing.done"})
        with connect(database, fresh=False) as connection:
            for _ in range(3):
                connection.execute("VACUUM (ANALYZE) event, handled, message")
                for _ in range(10):
                    await handle_one(store, queue)
            connection.execute(_HISTORY)
        for _ in range(10):
            await handle_one(store, queue)
    assert read_through(database) < 10_000


def read_through(url: str) -> int:
    """Rows that were found by reading a table from its first row on; others have left it."""
    with connect(url, fresh=False) as connection:
        until(  # what a session did is counted at its end
            lambda: connection.execute(_OTHERS).fetchall() == [{"count": 0}],
            timeout_s=60,
            what="the end of other sessions",
        )
        (row,) = connection.execute(
            "SELECT sum(seq_tup_read)::bigint AS count FROM pg_stat_user_tables"
            " WHERE relname IN ('event', 'handled', 'message')"
        ).fetchall()
    return int(row["count"])


async def handle_one(store: Store, queue: Queue) -> None:
    """One event from its commit to its mark."""
    await publish(store, 1)
    done: list[Message] = []
    while not done:
        done += (await queue.settle_and_claim([], {"g": ClaimLimit(100, 100)})).messages
    outcomes = [Outcome(message=message, verdict=Verdict.DONE) for message in done]
    await queue.settle_and_claim(outcomes, {})
