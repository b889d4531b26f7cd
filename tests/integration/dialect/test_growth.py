"""Plans follow the tables: what was short when a worker started is long after a while."""

from __future__ import annotations

from pathlib import Path

from tests.integration.dialect.database import connect
from tests.integration.engine.parts import opened, publish, until
from tests.integration.engine.stores import use
from tests.servers.process import wait_until

from cordata.broker import Outcome, StoreBroker, Want
from cordata.core.delivery import Verdict
from cordata.store import Store

_HISTORY = b"""
    INSERT INTO outbox (id, event_id, type, payload, state, next_at, created_at, published_at)
    SELECT n, n, 'a', repeat('x', 100), 'published', n, n, n
    FROM generate_series(1001, 51000) AS n;
    INSERT INTO seen SELECT n, 'g', n FROM generate_series(1001, 51000) AS n;
    INSERT INTO message (outbox_id, "group", priority, next_at)
    SELECT n, 'k', 0, 0 FROM generate_series(1001, 21000) AS n"""
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
        broker = StoreBroker(store, claim_timeout_s=60.0)
        await broker.register({"g": "thing.done"})
        with connect(database, fresh=False) as connection:
            for _ in range(3):
                connection.execute("VACUUM (ANALYZE) outbox, seen, message")
                for _ in range(10):
                    await handle_one(store, broker)
            connection.execute(_HISTORY)
        for _ in range(10):
            await handle_one(store, broker)
    assert read_through(database) < 10_000


def read_through(url: str) -> int:
    """Rows that were found by reading a table from its first row on; others have left it."""
    with connect(url, fresh=False) as connection:
        wait_until(  # what a session did is counted at its end
            lambda: connection.execute(_OTHERS).fetchall() == [{"count": 0}],
            timeout_s=60,
            what="the end of other sessions",
        )
        (row,) = connection.execute(
            "SELECT sum(seq_tup_read)::bigint AS count FROM pg_stat_user_tables"
            " WHERE relname IN ('outbox', 'seen', 'message')"
        ).fetchall()
    return int(row["count"])


async def handle_one(store: Store, broker: StoreBroker) -> None:
    """One event from its commit to its mark.

    Not due at once for sure: a look at the server's clock that is less vague than the last one may
    set the store's own back, by as much as that was late.
    """
    done: list[Outcome] = []

    async def relayed() -> bool:
        return bool((await broker.relay(100)).published)

    async def claimed() -> bool:
        for m in (await broker.exchange("me", [], {"g": Want(live=100)})).messages:
            done.append(Outcome(group=m.group, id=m.id, verdict=Verdict.DONE, event_id=m.event_id))
        return bool(done)

    await publish(store, 1, priority=1)
    await until(relayed)
    await until(claimed)
    await broker.exchange("me", done, {})
