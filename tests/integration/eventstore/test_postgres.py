"""What only PostgreSQL has: transactions that commit in another order than they got positions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import psycopg
import pytest
from tests.contract.eventstore.streams import append, events
from tests.integration.engine.parts import until
from tests.integration.engine.stores import use
from tests.integration.eventstore.ledger import app, opened, rows, running

import cordata.eventstore.log as event_log
from cordata.app import App
from cordata.errors import TransientError
from cordata.eventstore import EventLog, EventStore, StoredEvent
from cordata.services.subscription import service
from cordata.store import Store, Tx
from cordata.subscription import SubscriptionContext

INSERT = """INSERT INTO stored_event (stream, version, category, bucket, type, payload, created_at)
    VALUES ('room-9', 1, 'room', 1, 'x', '{}', 1)"""


@asynccontextmanager
async def store_of(database: str, path: Path) -> AsyncIterator[Store]:
    use(path, database)
    async with opened(path) as store:
        yield store


@contextmanager
def foreign(database: str, *statements: str) -> Iterator[psycopg.Connection]:
    """A transaction of somebody else, which has run these statements and is still open."""
    with psycopg.connect(database) as connection:
        for statement in statements:
            connection.execute(statement.encode())
        yield connection
        connection.rollback()


async def write(tx: Tx, stream: str, type: str) -> None:
    """Append, and see to it that the server has it: a write may wait for the commit."""
    await EventStore(tx).append(stream, events(type), expected=None)
    await EventStore(tx).version(stream)


async def seen_of(log: EventLog) -> list[str]:
    page = await log.page("account", after=0, until=await log.safe_position(), limit=100)
    return [event.type for event in page.events]


async def test_reader_waits_for_the_earlier_position_when_it_commits_later(
    database: str, tmp_path: Path
) -> None:
    async with store_of(database, tmp_path) as store:
        log = EventLog(store)
        async with store.transaction() as first:
            await write(first, "account-1", "first")
            async with store.transaction() as second:
                await write(second, "account-2", "second")
            assert await seen_of(log) == []  # the second one is committed, the first is not
            assert len(log.held_back_by) == 1
            async with store.transaction() as third:
                await write(third, "account-3", "third")
            assert await seen_of(log) == []
        assert await seen_of(log) == ["first", "second", "third"]
        assert not log.held_back_by


async def test_order_is_by_position_when_the_older_transaction_got_the_later_one(
    database: str, tmp_path: Path
) -> None:
    """The case in which comparing transaction ids alone would miss an event."""
    async with store_of(database, tmp_path) as store:
        log = EventLog(store)
        with foreign(database, "SELECT pg_current_xact_id()") as older:
            async with store.transaction() as younger:
                await write(younger, "account-1", "first")
                older.execute(
                    "INSERT INTO stored_event (stream, version, category, bucket, type, payload,"
                    " created_at) VALUES ('account-2', 1, 'account', 1, 'second', '{}', 1)"
                )
                older.commit()
                # Every transaction below the oldest in flight is over, and the position is there.
                assert await seen_of(log) == []
        assert await seen_of(log) == ["first", "second"]


async def test_reader_goes_on_past_positions_that_were_rolled_back(
    database: str, tmp_path: Path
) -> None:
    async with store_of(database, tmp_path) as store:
        log = EventLog(store)
        for _ in range(3):
            with pytest.raises(ValueError, match="no"):
                async with store.transaction() as tx:
                    await write(tx, "account-1", "lost")
                    raise ValueError("no")
        await append(store, "account-1", "kept")
        assert await seen_of(log) == ["kept"]
        page = await log.read("account")
        assert page.events[0].position == 4 and page.next == 4


async def test_long_transaction_that_appends_nothing_is_in_nobodys_way(
    database: str, tmp_path: Path
) -> None:
    async with store_of(database, tmp_path) as store:
        writes = "INSERT INTO handled VALUES ('a', 'b', 1, 1)"
        reads = "SELECT count(*) FROM stored_event"
        locks = "SELECT * FROM stored_event FOR UPDATE"
        with foreign(database, "SELECT pg_current_xact_id()", writes, reads, locks):
            await append(store, "account-1", "one")
            assert await seen_of(EventLog(store)) == ["one"]
            async with running(store, tmp_path, app):
                await append(store, "account-1", "two", amount=1)
                await until(lambda: _position(store, 2))


async def test_subscriptions_wait_and_say_for_whom_when_an_append_is_not_committed(
    database: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_log, "_TELL_S", 0.2)
    async with store_of(database, tmp_path) as store, running(store, tmp_path, app):
        with foreign(database, INSERT) as other:
            await append(store, "account-1", "one", amount=1)
            pid = other.info.backend_pid
            await until(lambda: f"of process {pid}" in caplog.text)
            assert await rows(store, "ledger.handled") == []
            with pytest.raises(TransientError, match=f"process {pid}"):
                await EventLog(store).head(timeout_s=0.1)
        # Nobody says that it has ended: it is looked for.
        await until(lambda: _position(store, 2))
        (warning,) = [r for r in caplog.records if r.levelno >= logging.WARNING]
        assert warning.name == "cordata.events"


async def test_subscription_to_what_comes_waits_when_an_append_is_not_committed(
    database: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service, "_HEAD_S", 0.1)
    caplog.set_level(logging.INFO)
    seen, local = list[str](), App("t")

    @local.subscribe("room", from_="end")
    async def collect(event: StoredEvent, ctx: SubscriptionContext) -> None:
        seen.append(event.stream)

    async with store_of(database, tmp_path) as store, running(store, tmp_path, local):
        with foreign(database, INSERT) as other:
            await until(lambda: "subscriptions wait: events up to" in caplog.text)
            other.commit()
        await until(lambda: "subscriptions go on" in caplog.text)
        await append(store, "room-1", "x")
        await until(lambda: seen == ["room-1"])


async def test_reader_is_late_by_milliseconds_when_writers_never_pause(
    database: str, tmp_path: Path
) -> None:
    async with store_of(database, tmp_path) as store:
        stop, log, lags = asyncio.Event(), EventLog(store), list[int]()

        async def go_on(number: int) -> None:
            while not stop.is_set():
                async with store.transaction() as tx:
                    await write(tx, f"account-{number}", "x")
                    await asyncio.sleep(0.002)

        async with asyncio.TaskGroup() as group:
            for number in range(4):
                group.create_task(go_on(number))
            for _ in range(100):
                await asyncio.sleep(0.005)
                safe = await log.safe_position()
                given = await store.read(lambda tx: tx.fetch_one("event.mark"))
                assert given is not None
                lags.append(given["position"] - safe)
            stop.set()
        assert sorted(lags)[len(lags) // 2] < 60 and lags[-1] < 200


async def _position(store: Store, position: int) -> bool:
    found = await rows(store, "ledger.partitions")
    return any(row["position"] >= position for row in found)
