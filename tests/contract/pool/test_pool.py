"""What a call does, whoever makes it and wherever it runs."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from uuid import uuid4

import pytest
from tests.contract.pool.conftest import Opened

from cordata.errors import (
    CommandFailed,
    CommandRefused,
    CommandUnknown,
    DeadlineExceeded,
    PoolClosed,
    SessionExists,
    SessionNotFound,
    TransientError,
)
from cordata.log import request_id


@pytest.mark.parametrize("value", [None, 7, "ß", b"\x00\xff", [1, [2.5]], {"a": {"b": None}}])
@pytest.mark.parametrize("command", ["echo", "echo_later"])
async def test_call_gives_back_what_the_command_returns(
    opened: Opened, command: str, value: object
) -> None:
    async with opened() as pool:
        assert await pool.execute(command, value) == value


async def test_result_is_converted_when_a_type_is_named(opened: Opened) -> None:
    async with opened() as pool:
        assert await pool.execute("echo", [1, 2], type=tuple[int, int]) == (1, 2)


async def test_command_that_raises_tells_type_text_and_traceback(opened: Opened) -> None:
    async with opened() as pool:
        with pytest.raises(CommandFailed, match="no room for 3") as caught:
            await pool.execute("fail", 3)
    assert caught.value.type == "tests.contract.pool.commands.NoRoom"
    assert "in fail" in caught.value.traceback
    assert not isinstance(caught.value, TransientError)


async def test_command_that_raises_permanently_is_refused(opened: Opened) -> None:
    async with opened() as pool:
        with pytest.raises(CommandRefused, match="never"):
            await pool.execute("refuse")


async def test_result_that_messagepack_does_not_know_fails_the_call(opened: Opened) -> None:
    async with opened() as pool:
        with pytest.raises(CommandFailed):
            await pool.execute("no_value")
        assert await pool.execute("echo", 1) == 1


async def test_command_that_nobody_has_is_unknown(opened: Opened) -> None:
    async with opened() as pool:
        with pytest.raises(CommandUnknown):
            await pool.execute("nothing")


async def test_payload_that_messagepack_does_not_know_is_not_sent(opened: Opened) -> None:
    async with opened() as pool:
        with pytest.raises(TypeError):
            await pool.execute("echo", object())
        with pytest.raises(ValueError, match="priority"):
            await pool.execute("echo", priority=10)


async def test_command_knows_its_call_and_is_warm(opened: Opened) -> None:
    token = request_id.set("req-1")
    try:
        async with opened() as pool:
            found = await pool.execute("about", timeout=20.0)
    finally:
        request_id.reset(token)
    assert (found["command"], found["request_id"]) == ("about", "req-1")
    assert 0 < found["remaining"] <= 20.0
    assert set(found["warmed"]) == {"warm"}


async def test_call_ends_at_its_deadline(opened: Opened) -> None:
    async with opened() as pool:
        began = time.monotonic()
        with pytest.raises(DeadlineExceeded):
            await pool.execute("sleep", 0.8, timeout=0.2)
        assert time.monotonic() - began >= 0.2
        assert await pool.execute("echo", 1) == 1


async def test_call_may_have_no_end(opened: Opened) -> None:
    async with opened() as pool:
        for timeout in (float("inf"), 1e300):
            assert await pool.execute("echo", 1, timeout=timeout) == 1
            assert [part async for part in pool.stream("pages", 2, timeout=timeout)] == [0, 1]


@pytest.mark.parametrize("command", ["pages", "pages_later"])
@pytest.mark.parametrize("credit", [1, 3, 16])
async def test_stream_gives_every_part_in_order(opened: Opened, command: str, credit: int) -> None:
    async with opened() as pool:
        found = [page async for page in pool.stream(command, 40, credit=credit)]
    assert found == [*range(40)]


async def test_stream_of_nothing_and_of_a_plain_value(opened: Opened) -> None:
    async with opened() as pool:
        assert [page async for page in pool.stream("pages", 0)] == []
        assert [page async for page in pool.stream("echo", "one")] == ["one"]


async def test_stream_that_fails_gives_what_came_before(opened: Opened) -> None:
    async with opened() as pool:
        found = []
        with pytest.raises(CommandFailed, match="last page"):
            async for page in pool.stream("broken_pages", 3):
                found.append(page)
        assert found == [0, 1, 2]


async def test_stream_that_is_left_ends_its_command(opened: Opened) -> None:
    async with opened() as pool:
        for _ in range(4):  # more than there are children
            async with aclosing(pool.stream("endless", credit=2)) as parts:
                assert [await anext(parts) for _ in range(10)] == [*range(10)]
        assert await pool.execute("echo", 1) == 1


async def test_generator_that_is_executed_gives_a_list(opened: Opened) -> None:
    async with opened() as pool:
        assert await pool.execute("pages", 3) == [0, 1, 2]


async def test_session_is_changed_by_its_calls(opened: Opened) -> None:
    async with opened() as pool:
        session = await pool.sessions.create(data={"rooms": [1]}, ttl_s=60.0)
        assert len(session.id) == 32
        found = await pool.execute("add", 2, session=session.id)
        assert found == {"rooms": [1, 2], "counters": {"added": 1}}
        await pool.execute("add", 3, session=session.id)
        now = await pool.sessions.get(session.id)
        assert (now.data, now.counters) == ({"rooms": [1, 2, 3]}, {"added": 2})
        assert now.version > session.version
        assert 50.0 < now.ttl_s <= 60.0


async def test_call_that_fails_changes_no_session(opened: Opened) -> None:
    async with opened() as pool:
        session = (await pool.sessions.create(data={"rooms": [1]})).id
        for command in ("add_and_fail", "add_and_give_no_value"):
            with pytest.raises(CommandFailed):
                await pool.execute(command, 2, session=session)
        assert (await pool.sessions.get(session)).data == {"rooms": [1]}
        assert (await pool.execute("add", 3, session=session))["rooms"] == [1, 3]


async def test_session_is_made_changed_counted_and_ended_by_its_client(opened: Opened) -> None:
    id = uuid4().hex
    async with opened() as pool:
        made = await pool.sessions.create(id, data={"a": 1, "b": 2}, worker="1")
        assert (made.id, made.data, made.worker) == (id, {"a": 1, "b": 2}, "1")
        with pytest.raises(SessionExists):
            await pool.sessions.create(id)
        changed = await pool.sessions.update(id, set={"c": 3}, delete=["a"], ttl_s=9.0)
        assert changed.data == {"b": 2, "c": 3}
        assert changed.ttl_s <= 9.0
        assert await pool.sessions.count(id, seen=2) == {"seen": 2}
        assert await pool.sessions.count(id, seen=1) == {"seen": 3}
        assert (await pool.sessions.get(id, peek=True)).counters == {"seen": 3}
        await pool.sessions.delete(id)
        for gone in (pool.sessions.get(id), pool.sessions.update(id), pool.sessions.delete(id)):
            with pytest.raises(SessionNotFound):
                await gone
        with pytest.raises(SessionNotFound):
            await pool.execute("echo", session=id)


async def test_globals_are_shared_by_clients_and_commands(opened: Opened) -> None:
    key = uuid4().hex
    async with opened() as pool:
        await pool.globals.set(**{key: [1]})
        assert (await pool.execute("shared"))[key] == [1]
        assert (await pool.execute("shared", {key: [2]}))[key] == [2]
        assert await pool.globals.get(key) == {key: [2]}
        await pool.globals.delete(key)
        assert await pool.globals.get(key) == {}
        assert key not in await pool.execute("shared")


async def test_calls_at_the_same_time_all_get_their_own_result(opened: Opened) -> None:
    async with opened() as pool, asyncio.TaskGroup() as group:
        calls = [group.create_task(pool.execute("echo", number)) for number in range(200)]
    assert [call.result() for call in calls] == [*range(200)]


async def test_closed_client_takes_no_calls(opened: Opened) -> None:
    async with opened() as pool:
        assert await pool.execute("echo", 1) == 1
        await pool.close()
        with pytest.raises(PoolClosed):
            await pool.execute("echo", 1)
