"""The small rules: errors, health, units, topics."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import cast

import pytest

from cordata.errors import (
    Conflict,
    PermanentError,
    StoreFull,
    StoreUnavailable,
)
from cordata.store.health import Busy, Health
from cordata.store.sqlite.fault import is_busy, is_storage, translate
from cordata.store.sqlite.tx import SqliteTx, drive
from cordata.store.topic import Topic
from cordata.store.tx import UnitMisuse, new_id


def fault(code: int, text: str = "text") -> sqlite3.Error:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorcode = code
    error.sqlite_errorname = f"CODE_{code}"
    return error


@pytest.mark.parametrize(
    ("code", "kind", "storage"),
    [
        (sqlite3.SQLITE_FULL, StoreFull, True),
        (sqlite3.SQLITE_IOERR, StoreUnavailable, True),
        (sqlite3.SQLITE_IOERR | 4 << 8, StoreUnavailable, True),
        (sqlite3.SQLITE_READONLY, StoreUnavailable, True),
        (sqlite3.SQLITE_CORRUPT, StoreUnavailable, True),
        (sqlite3.SQLITE_NOTADB, StoreUnavailable, True),
        (sqlite3.SQLITE_CANTOPEN, StoreUnavailable, True),
        (sqlite3.SQLITE_BUSY, Busy, False),
        (sqlite3.SQLITE_CONSTRAINT, Conflict, False),
        (sqlite3.SQLITE_ERROR, PermanentError, False),
        (0, PermanentError, False),
    ],
)
def test_driver_error_becomes_ours_when_it_leaves_the_store(
    code: int, kind: type[Exception], storage: bool
) -> None:
    told = translate(fault(code), "q")
    assert type(told) is kind and str(told).startswith("q: ")
    assert is_storage(fault(code)) is Health().failed(told) is storage
    assert is_busy(fault(code)) is (code == sqlite3.SQLITE_BUSY)


def test_conflict_names_the_columns_when_sqlite_does() -> None:
    told = translate(fault(sqlite3.SQLITE_CONSTRAINT, "UNIQUE constraint failed: a.b, a.c"), "q")
    assert isinstance(told, Conflict) and told.constraint == "a.b, a.c"


def test_message_is_cut_when_sqlite_quotes_a_whole_column() -> None:
    assert len(str(translate(fault(sqlite3.SQLITE_ERROR, "x" * 10_000), "q"))) < 400


def test_health_refuses_each_write_until_one_succeeds() -> None:
    changes: list[tuple[str, str]] = []
    health = Health()
    health.on_state = lambda state: changes.append((state, health.reason))
    assert health.error() is None
    health.failed(StoreFull("no room"))
    refusals = [health.error() for _ in range(3)]
    assert all(isinstance(refusal, StoreFull) for refusal in refusals)
    assert len({id(refusal) for refusal in refusals}) == 3
    health.failed(StoreFull("no room"))
    health.failed(StoreUnavailable("broken"))
    assert type(health.error()) is StoreUnavailable
    health.succeeded()
    health.succeeded()
    assert health.error() is None
    assert changes == [("full", "no room"), ("unavailable", "broken"), ("ok", "")]


def test_pause_grows_when_the_store_flaps() -> None:
    health = Health()
    first = health.pause_s
    for _ in range(10):
        health.failed(StoreFull("no room"))
        health.succeeded()
    assert first < health.pause_s <= 4.0


def test_pause_is_short_again_when_the_store_was_well_for_a_while() -> None:
    health = Health()
    first = health.pause_s
    for moment in range(10):
        health.failed(StoreFull("no room"), now=10.0 + moment)
        health.succeeded(now=10.5 + moment)
    assert health.pause_s == 4.0
    health.failed(StoreFull("no room"), now=100.0)
    assert health.pause_s == first


def test_pause_stays_when_the_first_write_ever_fails_or_the_reason_changes() -> None:
    health = Health()
    first = health.pause_s
    health.failed(StoreFull("no room"))
    health.failed(StoreUnavailable("broken"))
    assert health.pause_s == first


def test_unit_returns_its_value_when_driven() -> None:
    async def unit() -> int:
        return 7

    assert drive(unit(), cast(SqliteTx, _NoTx())) == 7


def test_unit_is_told_its_mistake_when_it_waits() -> None:
    async def unit() -> None:
        await asyncio.sleep(0)

    with pytest.raises(UnitMisuse, match="unit"):
        drive(unit(), cast(SqliteTx, _NoTx()))


class _NoTx:
    failed = None


def test_ids_sort_by_time_when_made_in_order() -> None:
    ids = [new_id(n * 1000) for n in (1, 2, 300, 4_000_000, 1_700_000_000_000)]
    assert ids == sorted(ids)
    assert all(len(one) == 32 and one[12] == "7" and one[16] in "89ab" for one in ids)


async def test_topic_wakes_a_task_once_when_it_was_woken_before_it_waits() -> None:
    topic = Topic()
    topic.wake()
    topic.wake()
    assert await topic.wait(60.0) is True
    assert await topic.wait(0.0) is False


async def test_topic_loses_nothing_when_two_tasks_take_turns() -> None:
    topic = Topic()
    order: list[str] = []

    async def consume(name: str, first: asyncio.Event, go: asyncio.Event) -> None:
        assert await topic.wait(60.0)
        first.set()
        await go.wait()
        # Both were busy when the second wake-up came; both must see it.
        assert await topic.wait(60.0)
        order.append(name)

    go = asyncio.Event()
    firsts = [asyncio.Event(), asyncio.Event()]
    async with asyncio.TaskGroup() as group:
        for name, first in zip("ab", firsts, strict=True):
            group.create_task(consume(name, first, go))
        await asyncio.sleep(0)
        topic.wake()
        for first in firsts:
            await first.wait()
        topic.wake()
        go.set()
    assert sorted(order) == ["a", "b"]
