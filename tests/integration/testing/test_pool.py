"""What a test of an application can do to its pool."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from time import monotonic

import pytest
from tests.contract.pool.shop import app

from cordata import App, Event, EventContext
from cordata.errors import ChildCrashed, CommandUnknown, DeadlineExceeded, SessionNotFound
from cordata.testing import open_app


async def test_command_crashes_as_often_as_it_is_told_to() -> None:
    async with open_app(app) as harness:
        pool = harness.ctx.pool
        harness.pool_crashes("echo", times=2)
        for _ in range(2):
            with pytest.raises(ChildCrashed) as caught:
                await pool.execute("echo", 1)
            assert caught.value.signal == 9
        assert await pool.execute("echo", 1) == 1


async def test_idempotent_call_is_run_again_as_often_as_the_pool_would() -> None:
    async with open_app(app, config={"pool": {"retries": 2}}) as harness:
        pool = harness.ctx.pool
        harness.pool_crashes("echo", times=2)
        assert await pool.execute("echo", 1, idempotent=True) == 1
        harness.pool_crashes("echo", times=3)
        with pytest.raises(ChildCrashed):
            await pool.execute("echo", 1, idempotent=True)


async def test_session_ends_by_the_clock_of_the_test() -> None:
    async with open_app(app) as harness:
        pool = harness.ctx.pool
        session = (await pool.sessions.create(ttl_s=3600.0)).id
        harness.advance(minutes=59)
        assert (await pool.execute("add", 1, session=session))["rooms"] == [1]
        harness.advance(minutes=59)
        await pool.sessions.get(session)
        harness.advance(minutes=64)  # a use counts for a twentieth longer
        with pytest.raises(SessionNotFound):
            await pool.execute("echo", session=session)


@pytest.mark.parametrize("command", ["endless", "pages_later"])
async def test_stream_that_nobody_reads_ends_as_in_a_child(command: str) -> None:
    async with open_app(app, config={"pool": {"unread_timeout_s": 0.2}}) as harness:
        pool = harness.ctx.pool
        async with aclosing(pool.stream(command, 1_000_000, credit=2, timeout=3600.0)) as parts:
            await anext(parts)
            assert await pool.execute("echo", 1) == 1
            with pytest.raises(DeadlineExceeded, match="unread_timeout_s"):
                async for _ in parts:
                    pass


async def test_handlers_find_the_same_pool() -> None:
    shop = App("shop")
    shop.command("echo", at="tests.contract.pool.commands:echo")
    found = []

    @shop.on("order.placed")
    async def price(event: Event, ctx: EventContext) -> None:
        found.append(await ctx.pool.execute("echo", event.payload))

    async with open_app(shop) as harness:
        await harness.publish("order.placed", {"item": "boots"})
        await harness.drain()
        assert found == [{"item": "boots"}]
        with pytest.raises(CommandUnknown):
            await harness.ctx.pool.execute("add")


async def test_call_that_waits_never_runs_when_it_is_cancelled() -> None:
    async with open_app(app) as harness:
        pool = harness.ctx.pool
        slow = pool.start("sleep", 1.0)
        waiting = asyncio.ensure_future(pool.execute("add", 1, session=""))
        for _ in range(20):  # turns of the loop
            await asyncio.sleep(0)
        waiting.cancel()
        await slow
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await pool.execute("echo", 2) == 2


async def test_call_does_not_begin_when_its_deadline_passed_while_the_loop_was_blocked() -> None:
    async with open_app(app) as harness:
        pool = harness.ctx.pool
        slow = pool.start("sleep", 0.4)
        late = pool.start("echo", 1, timeout=0.2)
        await asyncio.sleep(0)
        until = monotonic() + 0.8
        while monotonic() < until:  # the deadline passes, and the thread takes the next call
            pass
        await slow
        with pytest.raises(DeadlineExceeded) as error:
            await late
        assert error.value.ran is False
