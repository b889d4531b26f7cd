"""Reading in the common order: pages, categories, and nothing missed that commits late."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest
from tests.contract.eventstore.streams import append, events
from tests.contract.store.stores import Opener

from cordata.errors import PermanentError
from cordata.eventstore import EventLog, EventStore
from cordata.store import Store, Tx


class Undo(Exception):
    """Rolls a transaction back."""


async def fill(store: Store) -> None:
    for number in range(1, 11):
        await append(store, f"account-{number % 3}", f"a{number}")
        await append(store, f"room-{number % 2}", f"r{number}")


async def test_pages_of_a_category_hold_each_event_once_in_order(opened: Opener) -> None:
    async with opened() as store:
        await fill(store)
        log, after, seen = EventLog(store), 0, list[str]()
        for _ in range(20):
            page = await log.read("account", after=after, limit=3)
            seen += [event.type for event in page.events]
            assert all(event.position > after for event in page.events)
            after = page.next
            if not page.more:
                break
        assert seen == [f"a{number}" for number in range(1, 11)]
        assert not page.more and after == await log.head()


async def test_all_categories_are_read_when_none_is_named(opened: Opener) -> None:
    async with opened() as store:
        await fill(store)
        page = await EventLog(store).read(limit=5)
        assert [event.type for event in page.events] == ["a1", "r1", "a2", "r2", "a3"]
        assert page.more
        rest = await EventLog(store).read(after=page.next, limit=500)
        assert len(rest.events) == 15 and not rest.more


async def test_category_is_not_that_of_a_longer_name(opened: Opener) -> None:
    async with opened() as store:
        await append(store, "account", "own")
        await append(store, "accounts-1", "other")
        await append(store, "account-1", "own too")
        page = await EventLog(store).read("account")
        assert [event.type for event in page.events] == ["own", "own too"]


async def test_newest_come_first_when_read_backwards(opened: Opener) -> None:
    async with opened() as store:
        await fill(store)
        log = EventLog(store)
        page = await log.read_back("room", limit=4)
        assert [event.type for event in page.events] == ["r10", "r9", "r8", "r7"]
        page = await log.read_back("room", before=page.next, limit=4)
        assert [event.type for event in page.events] == ["r6", "r5", "r4", "r3"]
        assert [e.type for e in (await log.read_back(limit=3)).events] == ["r10", "a10", "r9"]


async def test_stream_is_read_in_pages_both_ways(opened: Opener) -> None:
    async with opened() as store:
        await append(store, "account-7", *"abcdefg")
        await append(store, "account-77", "z")

        async def forwards(tx: Tx) -> list[str]:
            found, after = list[str](), 0
            while True:
                page = await EventStore(tx).read("account-7", after=after, limit=3)
                found += [event.type for event in page.events]
                after = page.next
                if not page.more:
                    assert after == 7
                    return found

        async def backwards(tx: Tx) -> list[str]:
            page = await EventStore(tx).read_back("account-7", limit=3)
            more = await EventStore(tx).read_back("account-7", before=page.next, limit=3)
            return [event.type for event in (*page.events, *more.events)]

        assert await store.read(forwards) == list("abcdefg")
        assert await store.read(backwards) == list("gfedcb")


async def test_stream_is_read_to_its_end_when_it_has_several_pages(opened: Opener) -> None:
    async def versions(tx: Tx) -> list[list[int]]:
        streams = EventStore(tx)
        return [
            [event.version async for event in streams.read_all("account-7")],
            [event.version async for event in streams.read_all("account-7", after=999)],
            [event.version async for event in streams.read_all("account-8")],
        ]

    async with opened() as store:
        # Twice what a page has at most, so that its end is not the stream's; then one more.
        await append(store, "account-7", *("a" * 1000))
        assert await store.read(versions) == [list(range(1, 1001)), [1000], []]
        await append(store, "account-7", "b")
        assert await store.read(versions) == [list(range(1, 1002)), [1000, 1001], []]


async def test_page_is_empty_when_there_is_nothing(opened: Opener) -> None:
    async with opened() as store:
        page = await EventLog(store).read("account")
        assert (list(page.events), page.next, page.more) == ([], 0, False)
        # What comes next is not behind the reader, though the store has just seen its first event.
        await append(store, "account-7", "first")
        page = await EventLog(store).read("account", after=page.next)
        assert [event.type for event in page.events] == ["first"]


async def test_page_is_refused_when_it_is_not_bounded(opened: Opener) -> None:
    async with opened() as store:
        for limit in (0, 501):
            with pytest.raises(PermanentError):
                await EventLog(store).read(limit=limit)
            with pytest.raises(PermanentError):
                await EventLog(store).read_back(limit=limit)
            with pytest.raises(PermanentError):
                await store.read(lambda tx, n=limit: EventStore(tx).read("a", limit=n))  # type: ignore[misc]


async def test_reader_misses_nothing_when_writers_overlap_and_roll_back(opened: Opener) -> None:
    written: set[tuple[str, int]] = set()
    seen: list[tuple[str, int]] = []
    positions: list[int] = []

    async def write(store: Store, stream: str, rng: random.Random) -> None:
        for _ in range(12):
            with contextlib.suppress(Undo):
                async with store.transaction() as tx:
                    streams = EventStore(tx)
                    version = await streams.append(stream, events("x", "y"), expected=None)
                    await asyncio.sleep(rng.random() * 0.01)
                    if rng.random() < 0.3:
                        raise Undo
                written.update({(stream, version - 1), (stream, version)})

    async def read(log: EventLog, done: asyncio.Event) -> None:
        after = 0
        while True:
            finished = done.is_set()
            until = await log.head() if finished else await log.safe_position()
            page = await log.page("account", after=after, until=until, limit=7)
            seen.extend((event.stream, event.version) for event in page.events)
            positions.extend(event.position for event in page.events)
            after = page.next
            if finished and not page.more:
                return
            await asyncio.sleep(0.002)

    async with opened() as one, opened() as two, asyncio.TaskGroup() as group:
        done = asyncio.Event()
        group.create_task(read(EventLog(two), done))
        async with asyncio.TaskGroup() as writers:
            for number in range(6):
                store = one if number % 2 else two
                writers.create_task(write(store, f"account-{number}", random.Random(number)))
        done.set()
    assert positions == sorted(set(positions))
    assert set(seen) == written and len(seen) == len(written)
