"""The tasks of a store: whoever waits for one is told how it ended."""

from __future__ import annotations

import asyncio

import pytest

from cordata.errors import StoreUnavailable
from cordata.store.tasks import StoreTasks


async def test_waiting_ends_when_the_store_is_closed_before_the_work_began() -> None:
    begun = False

    async def work() -> None:
        nonlocal begun
        begun = True

    tasks = StoreTasks()
    await tasks.open()
    future = tasks.start(work())
    await tasks.close()
    async with asyncio.timeout(60):
        with pytest.raises(StoreUnavailable, match="closed"):
            await future
    assert not begun


async def test_waiting_ends_when_the_store_is_closed_amid_the_work() -> None:
    begun = asyncio.Event()

    async def work() -> None:
        begun.set()
        await asyncio.Event().wait()

    tasks = StoreTasks()
    await tasks.open()
    future = tasks.start(work())
    await begun.wait()
    await tasks.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await future


async def test_nothing_begins_when_the_store_is_closed() -> None:
    async def work() -> None:
        raise AssertionError

    tasks = StoreTasks()
    await tasks.open()
    await tasks.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await tasks.start(work())


async def test_work_goes_on_when_nobody_waits_for_it_any_more() -> None:
    go, done = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        await go.wait()
        done.set()

    tasks = StoreTasks()
    await tasks.open()
    tasks.start(work()).cancel()
    go.set()
    async with asyncio.timeout(60):
        await done.wait()
    await tasks.close()
