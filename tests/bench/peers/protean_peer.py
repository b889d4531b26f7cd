# What its decorators make of a class is not to be seen in the source.
# mypy: disable-error-code="attr-defined,call-arg"
"""protean on PostgreSQL and Redis Streams, with an outbox between them: what cordata succeeds.

As it comes, with its traces and a line per message; only the health server's port is not taken.
"""

from __future__ import annotations

import os

import psycopg
from protean import Domain
from protean.fields import String

domain = Domain(
    name="bench",
    # It imports every module below this directory: not the other peers.
    root_path=os.environ["FOLDER"],
    config={
        "databases": {"default": {"provider": "postgresql", "database_uri": os.environ["URL"]}},
        "brokers": {"default": {"provider": "redis", "URI": os.environ["REDIS_URL"]}},
        "event_store": {"provider": "memory"},
        "event_processing": "async",
        "server": {"default_subscription_type": "stream", "health": {"enabled": False}},
    },
)


@domain.aggregate
class Thing:
    text = String(max_length=1000)

    def done(self) -> None:
        self.raise_(ThingDone(thing_id=self.id, text=self.text))


@domain.event(part_of="Thing")
class ThingDone:
    thing_id = String()
    text = String(max_length=1000)


def _write_one() -> None:
    """One event as the application writes it; the others are copies of its row."""
    for provider in domain.providers.values():
        provider._create_database_artifacts()
    thing = Thing(text="x" * 400)
    thing.done()
    domain.repository_for(Thing).add(thing)


def load_outbox(count: int, old: int) -> None:
    """So many entries in the outbox that wait, and `old` ones that were published."""
    domain.init(traverse=False)
    with domain.domain_context():
        _write_one()
    with psycopg.connect(os.environ["URL"], autocommit=True) as connection:
        connection.execute("CREATE TEMP TABLE one AS SELECT * FROM outbox")
        connection.execute("DELETE FROM outbox")
        _copy(connection, old, status="'published'", published_at="now()")
        _copy(connection, count)
        connection.execute("VACUUM ANALYZE outbox")


def _copy(connection: psycopg.Connection, count: int, **changed: str) -> None:
    changed |= {"id": "gen_random_uuid()::text", "message_id": "gen_random_uuid()::text"}
    columns = connection.execute("SELECT * FROM one LIMIT 0").description or []
    names = [column.name for column in columns]
    values = ", ".join(changed.get(name, name) for name in names)
    statement = f"INSERT INTO outbox ({', '.join(names)}) SELECT {values} FROM one, "
    connection.execute((statement + f"generate_series(1, {count})").encode())
