"""Appending: versions, what is expected, what is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.contract.eventstore.streams import append, events, history, types
from tests.contract.store.stores import Opener, add_account, balance

from cordata import log, trace
from cordata.core.eventstream import PAYLOAD_BYTES
from cordata.errors import Conflict, PermanentError, WrongExpectedVersion
from cordata.eventstore import EventStore, NewEvent
from cordata.store import Tx


async def test_event_is_read_as_it_was_appended(opened: Opener) -> None:
    async with opened() as store:
        token = log.request_id.set("0af7651916cd43dd8448eb211c80319c")
        payload: dict[str, Any] = {"amount": 5, "to": "Müller", "nested": {"a": [1, None, True]}}
        version = await append(store, "account-7", "deposited", headers={"by": "me"}, **payload)
        log.request_id.reset(token)
        (event,) = await history(store, "account-7")
    assert version == event.version == 1
    assert (event.stream, event.type, event.payload) == ("account-7", "deposited", payload)
    assert event.headers == {"by": "me", "request_id": "0af7651916cd43dd8448eb211c80319c"}
    assert event.position >= 1 and event.created_at.year >= 2024 and event.attempt == 1


async def test_event_has_the_trace_that_the_request_came_with(opened: Opener) -> None:
    given = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    async with opened() as store:
        trace.begin_request("req-1", given)
        await append(store, "account-7", "deposited")
        trace.end()
        (event,) = await history(store, "account-7")
    assert event.headers["traceparent"].startswith("00-4bf92f3577b34da6a3ce929d0e0e4736-")


async def test_versions_have_no_gaps_when_appends_are_of_any_size(opened: Opener) -> None:
    async with opened() as store:
        assert await append(store, "account-7", "a", "b", "c") == 3
        assert await append(store, "account-8", "x") == 1
        assert await append(store, "account-7", "d") == 4
        found = await history(store, "account-7")
    assert [(event.version, event.type) for event in found] == [
        (1, "a"),
        (2, "b"),
        (3, "c"),
        (4, "d"),
    ]
    assert [event.position for event in found] == sorted({event.position for event in found})


async def test_append_goes_through_when_the_version_is_the_expected_one(opened: Opener) -> None:
    async with opened() as store:
        assert await append(store, "account-7", "a", "b", expected=0) == 2
        assert await append(store, "account-7", "c", expected=2) == 3
        assert await types(store, "account-7") == ["a", "b", "c"]


@pytest.mark.parametrize("expected", [0, 1, 3, 99])
async def test_nothing_is_appended_when_the_version_is_another_one(
    opened: Opener, expected: int
) -> None:
    async with opened() as store:
        await append(store, "account-7", "a", "b")
        with pytest.raises(WrongExpectedVersion) as caught:
            await append(store, "account-7", "c", expected=expected)
        error = caught.value
        assert (error.stream, error.expected, error.actual) == ("account-7", expected, 2)
        assert isinstance(error, Conflict) and error.code == "wrong_expected_version"
        assert await types(store, "account-7") == ["a", "b"]


async def test_version_is_zero_when_there_is_no_such_stream(opened: Opener) -> None:
    async with opened() as store:
        with pytest.raises(WrongExpectedVersion) as caught:
            await append(store, "account-7", "a", expected=4)
        assert caught.value.actual == 0
        assert await history(store, "account-7") == []


async def test_one_of_many_wins_when_all_expect_the_same_version(opened: Opener) -> None:
    async with opened() as store, opened() as other:
        for expected in (0, 1, 2):
            results: list[int] = []

            async def one(
                number: int, expected: int = expected, results: list[int] = results
            ) -> None:
                try:
                    where = store if number % 2 else other
                    results.append(await append(where, "account-7", f"{number}", expected=expected))
                except WrongExpectedVersion as error:
                    results.append(error.actual)

            async with asyncio.TaskGroup() as group:
                for number in range(12):
                    group.create_task(one(number))
            # The winner's new version, and the same as what the losers were told.
            assert results == [expected + 1] * 12
            assert len(await history(store, "account-7")) == expected + 1


async def test_all_are_appended_when_nobody_expects_anything(opened: Opener) -> None:
    async with opened() as store, opened() as other, asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(append(store if n % 2 else other, "account-7", "a", "b"))
            for n in range(20)
        ]
        versions = [await task for task in tasks]
        assert sorted(versions) == list(range(2, 41, 2))
        assert [event.version for event in await history(store, "account-7")] == list(range(1, 41))


async def test_events_commit_with_what_else_the_unit_writes(opened: Opener) -> None:
    async with opened() as store:

        async def unit(tx: Tx) -> None:
            await tx.execute("account.add", id="7", balance=5)
            await tx.publish("account.opened", {"id": 7})
            await EventStore(tx).append("account-7", events("opened"), expected=0)

        await store.run(unit)
        assert await balance(store, "7") == 5
        assert await types(store, "account-7") == ["opened"]
        with pytest.raises(Conflict):  # of the account: there is one already
            await store.run(unit)
        assert await types(store, "account-7") == ["opened"]


async def test_nothing_of_a_unit_is_written_when_its_append_comes_too_late(opened: Opener) -> None:
    async with opened() as store:
        await append(store, "account-7", "opened")

        async def unit(tx: Tx) -> None:
            await tx.execute("account.add", id="7", balance=5)
            await EventStore(tx).append("account-7", events("opened"), expected=0)

        with pytest.raises(WrongExpectedVersion):
            await store.run(unit)
        assert await balance(store, "7") is None


async def test_unit_decides_on_what_the_stream_holds(opened: Opener) -> None:
    async with opened() as store:
        await add_account(store, "7")

        async def deposit(tx: Tx) -> int:
            streams = EventStore(tx)
            page = await streams.read("account-7")
            new = NewEvent(type="deposited", payload={"sum": len(page.events)})
            return await streams.append("account-7", [new], expected=page.next)

        assert [await store.run(deposit) for _ in range(3)] == [1, 2, 3]
        sums = [event.payload["sum"] for event in await history(store, "account-7")]
        assert sums == [0, 1, 2]


async def test_append_works_in_a_transaction_of_its_own(opened: Opener) -> None:
    async with opened() as store:
        async with store.transaction() as tx:
            assert await EventStore(tx).append("account-7", events("a"), expected=0) == 1
            await asyncio.sleep(0)
            assert await EventStore(tx).append("account-7", events("b", "c"), expected=None) == 3
            assert await EventStore(tx).version("account-7") == 3
        assert await types(store, "account-7") == ["a", "b", "c"]
        with pytest.raises(ValueError, match="no"):
            async with store.transaction() as tx:
                await EventStore(tx).append("account-7", events("d"), expected=3)
                raise ValueError("no")
        assert await types(store, "account-7") == ["a", "b", "c"]


async def test_append_is_refused_when_something_is_too_big_or_malformed(opened: Opener) -> None:
    async with opened() as store:
        for stream, new in (
            ("account 7", events("a")),
            ("account-7", events("")),
            ("account-7", events("a", text="x" * PAYLOAD_BYTES)),
            ("account-7", []),
            ("account-7", events("a") * 1001),
            ("account-7", [NewEvent(type="a", payload=["no object"])]),  # type: ignore[arg-type]
        ):
            with pytest.raises(PermanentError):
                await store.run(
                    lambda tx, stream=stream, new=new: EventStore(tx).append(  # type: ignore[misc]
                        stream, new, expected=None
                    )
                )
        with pytest.raises(TypeError):
            await append(store, "account-7", "a", what=object())
        assert await history(store, "account-7") == []


async def test_waiters_are_woken_when_something_was_appended(opened: Opener) -> None:
    from cordata.eventstore import EventLog

    async with opened() as store, opened() as other, asyncio.TaskGroup() as group:
        waiting = group.create_task(EventLog(other).wait(60.0))
        await asyncio.sleep(0.2)
        await append(store, "account-7", "a")
        assert await waiting is True
