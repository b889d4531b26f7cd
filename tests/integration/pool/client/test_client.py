"""The async client against a manager by script."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from tests.integration.pool.peer import Listening, Peer

from cordata.core.pool.message import (
    Ask,
    CallFrame,
    Cancel,
    Chunk,
    Credit,
    End,
    ErrorFrame,
    GlobalOp,
    Goaway,
    Hello,
    Reply,
    Result,
    SessionOp,
    Welcome,
)
from cordata.errors import (
    CallCancelled,
    CommandFailed,
    DeadlineExceeded,
    FrameTooLarge,
    PoolClosed,
    PoolRestarted,
    PoolSaturated,
    PoolUnavailable,
    ProtocolError,
    SessionNotFound,
)
from cordata.pool import Client

T = TypeVar("T")


def raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.msgpack.encode(value))


async def off(function: Callable[..., T], *args: Any, **named: Any) -> T:
    """The script's side waits in a thread, while the client's loop goes on."""
    return await asyncio.to_thread(function, *args, **named)


@asynccontextmanager
async def talking(tmp_path: Path, **options: Any) -> AsyncIterator[tuple[Client, Listening]]:
    with Listening(tmp_path / "pool.sock") as manager:
        async with Client(manager.path, **options) as client:
            yield client, manager


async def welcomed(manager: Listening) -> Peer:
    peer, hello = await off(manager.welcome)
    assert (hello.role, hello.v) == ("client", 1)
    return peer


async def test_call_gives_its_result_and_says_what_was_asked(tmp_path: Path) -> None:
    async with talking(tmp_path) as (client, manager):
        call = client.start(
            "render",
            {"rooms": 3},
            session="s1",
            timeout=5.0,
            queue_timeout=1.0,
            idempotent=True,
            priority=4,
        )
        with await welcomed(manager) as peer:
            frame = await off(peer.expect, CallFrame)
            assert (frame.command, frame.session, frame.idempotent) == ("render", "s1", True)
            assert (frame.priority, frame.queue_timeout_s, frame.credits) == (4, 1.0, 0)
            assert frame.timeout_s is not None
            assert 4.0 < frame.timeout_s <= 5.0
            assert msgspec.msgpack.decode(frame.payload) == {"rooms": 3}
            peer.send(Result(id=frame.id, payload=raw(["done"])))
            assert await call == ["done"]


async def test_calls_share_a_connection_and_end_in_any_order(tmp_path: Path) -> None:
    async with talking(tmp_path) as (client, manager):
        calls = [client.start("echo", number) for number in range(300)]
        with await welcomed(manager) as peer:
            frames = [await off(peer.expect, CallFrame) for _ in calls]
            assert [msgspec.msgpack.decode(frame.payload) for frame in frames] == [*range(300)]
            for frame in reversed(frames):
                await off(peer.send, Result(id=frame.id, payload=frame.payload))
            assert [await call for call in calls] == [*range(300)]


async def test_result_is_converted_or_refused_when_a_type_is_named(tmp_path: Path) -> None:
    async with talking(tmp_path) as (client, manager):
        good, bad = client.start("echo", type=int), client.start("echo", type=str)
        with await welcomed(manager) as peer:
            for _ in range(2):
                peer.send(Result(id=(await off(peer.expect, CallFrame)).id, payload=raw(7)))
            assert await good == 7
            with pytest.raises(msgspec.ValidationError):
                await bad


async def test_error_of_the_command_is_raised_with_its_type(tmp_path: Path) -> None:
    async with talking(tmp_path) as (client, manager):
        call = client.start("render")
        with await welcomed(manager) as peer:
            frame = await off(peer.expect, CallFrame)
            peer.send(ErrorFrame(id=frame.id, code="failed", m="full", data={"type": "NoRoom"}))
            with pytest.raises(CommandFailed, match="full") as caught:
                await call
            assert caught.value.type == "NoRoom"


async def test_cancelling_the_await_cancels_the_call_and_drops_its_answer(tmp_path: Path) -> None:
    async with talking(tmp_path) as (client, manager), asyncio.TaskGroup() as group:
        task = group.create_task(client.execute("slow"))
        peer = await welcomed(manager)
        frame = await off(peer.expect, CallFrame)
        task.cancel()
        cancel = await off(peer.expect, Cancel)
        assert (cancel.id, cancel.hard) == (frame.id, False)
        peer.send(Result(id=frame.id, payload=raw(1)))
        following = client.start("echo")
        frame = await off(peer.expect, CallFrame)
        peer.send(Result(id=frame.id, payload=raw(2)))
        assert await following == 2
        peer.close()


async def test_hard_cancel_tells_the_manager_and_ends_with_its_word(tmp_path: Path) -> None:
    async with talking(tmp_path) as (client, manager):
        call = client.start("slow")
        with await welcomed(manager) as peer:
            frame = await off(peer.expect, CallFrame)
            call.cancel(hard=True)
            assert (await off(peer.expect, Cancel)).hard
            assert not call.done()
            peer.send(ErrorFrame(id=frame.id, code="cancelled"))
            with pytest.raises(CallCancelled):
                await call
            call.cancel()
            assert await off(peer.silent, 0.05)


async def test_cancel_ends_a_call_at_once_when_it_was_never_sent(tmp_path: Path) -> None:
    async with Client(tmp_path / "nobody") as client:
        call = client.start("slow")
        call.cancel()
        with pytest.raises(CallCancelled):
            await call


async def test_deadline_ends_the_call_when_the_manager_hangs(tmp_path: Path) -> None:
    async with talking(tmp_path) as (client, manager):
        began = time.monotonic()
        call = client.start("slow", timeout=0.2)
        with await welcomed(manager) as peer:
            frame = await off(peer.expect, CallFrame)
            with pytest.raises(DeadlineExceeded):
                await call
            assert 0.2 <= time.monotonic() - began < 2.0
            assert (await off(peer.expect, Cancel)).id == frame.id


async def test_manager_has_a_moment_to_say_whether_a_late_call_ran(tmp_path: Path) -> None:
    async with talking(tmp_path) as (client, manager):
        call = client.start("slow", timeout=0.1)
        with await welcomed(manager) as peer:
            frame = await off(peer.expect, CallFrame)
            await asyncio.sleep(0.13)
            peer.send(ErrorFrame(id=frame.id, code="deadline", data={"ran": False}))
            with pytest.raises(DeadlineExceeded) as caught:
                await call
            assert not caught.value.ran


async def test_call_waits_for_a_manager_that_comes_later(tmp_path: Path) -> None:
    path = tmp_path / "pool.sock"
    async with Client(path) as client:
        call = client.start("echo", timeout=10.0)
        await asyncio.sleep(0.05)
        with Listening(path) as manager, await welcomed(manager) as peer:
            frame = await off(peer.expect, CallFrame)
            peer.send(Result(id=frame.id, payload=raw(1)))
            assert await call == 1


async def test_call_is_unavailable_at_its_deadline_when_there_is_no_manager(tmp_path: Path) -> None:
    async with Client(tmp_path / "nobody", max_waiting=1) as client:
        call = client.start("echo", timeout=0.1)
        with pytest.raises(PoolSaturated):
            client.start("echo")
        with pytest.raises(PoolUnavailable, match="No such file"):
            await call
        with pytest.raises(PoolUnavailable):
            await client.execute("echo", timeout=0.05)


async def test_lost_connection_repeats_what_may_run_twice_and_nothing_else(tmp_path: Path) -> None:
    async with talking(tmp_path) as (client, manager):
        once = client.start("book", timeout=5.0)
        often = client.start("render", timeout=5.0, idempotent=True)
        asked = asyncio.ensure_future(client.sessions.get("s"))
        peer = await welcomed(manager)
        for kind in (CallFrame, CallFrame):
            await off(peer.expect, kind)
        await off(peer.expect, SessionOp)
        peer.close()
        with pytest.raises(PoolRestarted):
            await once
        with await welcomed(manager) as peer:
            frame = await off(peer.expect, CallFrame)
            assert (frame.command, frame.attempts) == ("render", 1)
            assert frame.timeout_s is not None
            assert frame.timeout_s < 5.0
            peer.send(Result(id=frame.id, payload=raw("page")))
            peer.send(Reply(id=(await off(peer.expect, SessionOp)).id, s="s"))
            assert await often == "page"
            assert (await asked).id == "s"


async def test_late_call_says_that_it_may_have_run_under_a_manager_that_is_gone(
    tmp_path: Path,
) -> None:
    async with talking(tmp_path, timeout=0.5) as (client, manager):
        large = client.start("render", bytes(3_000_000), idempotent=True)
        small = client.start("render", idempotent=True)
        peer = await welcomed(manager)
        for _ in range(2):
            await off(peer.expect, CallFrame)
        peer.close()
        with await welcomed(manager):  # it reads nothing, so the small one is not sent again
            for call in (large, small):
                with pytest.raises(DeadlineExceeded) as caught:
                    await call
                assert caught.value.ran


async def test_call_is_sent_again_when_the_manager_never_had_it_whole(tmp_path: Path) -> None:
    """Though it may not run twice: half of a frame cannot have run."""
    async with talking(tmp_path) as (client, manager):
        peer = await welcomed_first(client, manager)
        call = client.start("book", b"x" * 4_000_000, timeout=5.0)
        await asyncio.sleep(0.05)  # the kernel takes what fits, the script reads nothing
        peer.close()
        with await welcomed(manager) as peer:
            frame = await off(peer.expect, CallFrame)
            assert frame.attempts == 0
            peer.send(Result(id=frame.id, payload=raw("booked")))
            assert await call == "booked"


async def welcomed_first(client: Client, manager: Listening) -> Peer:
    """A connection that has carried a call."""
    call = client.start("echo")
    peer = await welcomed(manager)
    peer.send(Result(id=(await off(peer.expect, CallFrame)).id))
    await call
    return peer


async def test_calls_that_did_not_run_go_to_the_next_manager_unseen(tmp_path: Path) -> None:
    async with talking(tmp_path) as (client, manager):
        running, waiting = client.start("book", 1), client.start("book", 2)
        old = await welcomed(manager)
        first, second = [await off(old.expect, CallFrame) for _ in range(2)]
        old.send(Goaway(why="stop"))
        old.send(ErrorFrame(id=second.id, code="not_run"))
        new = await welcomed(manager)
        again = await off(new.expect, CallFrame)
        assert (msgspec.msgpack.decode(again.payload), again.attempts) == (2, 0)
        later = client.start("book", 3)
        assert msgspec.msgpack.decode((await off(new.expect, CallFrame)).payload) == 3
        new.send(Result(id=again.id, payload=raw("second")))
        old.send(Result(id=first.id, payload=raw("first")))
        assert (await running, await waiting) == ("first", "second")
        old.close()
        new.close()
        with pytest.raises(PoolRestarted):
            await later


async def test_stream_takes_parts_as_they_are_read(tmp_path: Path) -> None:
    async with talking(tmp_path) as (client, manager):
        parts = client.stream("pages", credit=4)
        reading = asyncio.ensure_future(anext(parts))
        with await welcomed(manager) as peer:
            frame = await off(peer.expect, CallFrame)
            assert frame.credits == 4
            for number in range(4):
                peer.send(Chunk(id=frame.id, payload=raw(number)))
            assert await reading == 0
            assert await anext(parts) == 1
            credit = await off(peer.expect, Credit)
            assert (credit.id, credit.n) == (frame.id, 2)
            assert await off(peer.silent, 0.05)
            peer.send(End(id=frame.id))
            assert [part async for part in parts] == [2, 3]


async def test_cancelled_call_that_nobody_awaits_is_no_fault(tmp_path: Path) -> None:
    said: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context))
    async with Client(tmp_path / "pool.sock", timeout=5.0) as client:
        client.start("echo").cancel()
        gc.collect()
    assert said == []


async def test_stream_is_cancelled_when_it_is_left(tmp_path: Path) -> None:
    async with talking(tmp_path) as (client, manager):
        async with aclosing(client.stream("pages")) as parts:
            reading = asyncio.ensure_future(anext(parts))
            peer = await welcomed(manager)
            frame = await off(peer.expect, CallFrame)
            peer.send(Chunk(id=frame.id, payload=raw(0)))
            assert await reading == 0
        assert (await off(peer.expect, Cancel)).id == frame.id
        peer.close()


async def test_stream_gives_what_came_before_its_error(tmp_path: Path) -> None:
    async with talking(tmp_path) as (client, manager):
        parts = client.stream("pages", idempotent=True)
        reading = asyncio.ensure_future(anext(parts))
        with await welcomed(manager) as peer:
            await off(peer.expect, CallFrame)
        # Nothing was read of it: it begins anew.
        with await welcomed(manager) as peer:
            frame = await off(peer.expect, CallFrame)
            assert frame.attempts == 1
            peer.send(Chunk(id=frame.id, payload=raw(0)))
            peer.send(Chunk(id=frame.id, payload=raw(1)))
        assert await reading == 0
        assert await anext(parts) == 1
        with pytest.raises(PoolRestarted):
            await anext(parts)


async def test_refused_connection_fails_what_waits_for_it(tmp_path: Path) -> None:
    async with talking(tmp_path) as (client, manager):
        call = client.start("echo")
        with await off(manager.accept) as peer:
            await off(peer.expect, Hello)
            peer.send(ErrorFrame(code="version", m="version 7 is wanted"))
        with pytest.raises(ProtocolError, match="version 7"):
            await call
        (await welcomed_first(client, manager)).close()


async def test_too_large_a_call_fails_alone(tmp_path: Path) -> None:
    async with talking(tmp_path) as (client, manager):
        call, other = client.start("echo", b"x" * 2000), client.start("echo")
        with await off(manager.accept) as peer:
            await off(peer.expect, Hello)
            peer.send(Welcome(epoch="0" * 16, max=1024))
            with pytest.raises(FrameTooLarge):
                await call
            frame = await off(peer.expect, CallFrame)
            peer.send(Result(id=frame.id, payload=raw(1)))
            assert await other == 1


async def test_garbage_ends_the_connection_and_what_was_under_way(tmp_path: Path) -> None:
    async with talking(tmp_path) as (client, manager):
        call = client.start("echo")
        with await welcomed(manager) as peer:
            await off(peer.expect, CallFrame)
            peer.raw(b"\0\0\0\1\xc1")
            with pytest.raises(PoolRestarted, match="MessagePack"):
                await call


async def test_close_ends_calls_and_takes_no_more(tmp_path: Path) -> None:
    async with talking(tmp_path) as (client, manager):
        call = client.start("echo")
        with await welcomed(manager) as peer:
            await off(peer.expect, CallFrame)
            await client.close()
            await client.close()
            with pytest.raises(PoolClosed):
                await call
            with pytest.raises(PoolClosed):
                client.start("echo")
            assert await off(peer.closed)


async def test_sessions_and_globals_speak_the_protocol(tmp_path: Path) -> None:
    async with talking(tmp_path) as (client, manager):
        creating = asyncio.ensure_future(
            client.sessions.create("s", data={"n": [1]}, ttl_s=9.0, affinity="hint", worker="1")
        )
        with await welcomed(manager) as peer:
            asked = await off(peer.expect, SessionOp)
            assert (asked.op, asked.s, asked.ttl, asked.aff, asked.wk) == (
                "create",
                "s",
                9.0,
                "hint",
                "1",
            )
            peer.send(Reply(id=asked.id, s="s", v=3, ttl=9.0, set=asked.set, cnt={"c": 2}))
            info = await creating
            assert (info.id, info.version, info.ttl_s) == ("s", 3, 9.0)
            assert (info.data, info.counters) == ({"n": [1]}, {"c": 2})
            counting = asyncio.ensure_future(client.sessions.count("s", seen=2))
            asked = await off(peer.expect, SessionOp)
            assert asked.by == {"seen": 2}
            peer.send(ErrorFrame(id=asked.id, code="no_session"))
            with pytest.raises(SessionNotFound):
                await counting
            getting = asyncio.ensure_future(client.globals.get("a"))
            question = await off(peer.expect, GlobalOp)
            assert (question.op, question.keys) == ("get", ["a"])
            peer.send(Reply(id=question.id, set={"a": raw(1)}))
            assert await getting == {"a": 1}


async def test_operator_asks_as_one(tmp_path: Path) -> None:
    async with talking(tmp_path, operator=True) as (client, manager):
        asking = asyncio.ensure_future(client.status())
        peer, hello = await off(manager.welcome)
        assert hello.role == "operator"
        question = await off(peer.expect, Ask)
        assert question.op == "status"
        peer.send(Reply(id=question.id, payload=raw({"waiting": 0})))
        assert await asking == {"waiting": 0}
        peer.close()
