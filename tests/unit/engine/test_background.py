"""Side loops for the length of a block."""

from __future__ import annotations

import asyncio

import pytest

from cordata.services.loop import background


async def test_loops_are_cancelled_when_the_block_ends() -> None:
    cancelled = asyncio.Event()

    async def loop() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with background(loop()):
        await asyncio.sleep(0)
    assert cancelled.is_set()


async def test_error_of_the_block_keeps_its_type() -> None:
    with pytest.raises(KeyError):
        async with background(asyncio.Event().wait()):  # type: ignore[arg-type]
            raise KeyError("x")


async def test_error_of_a_loop_cancels_the_block_and_keeps_its_type() -> None:
    async def loop() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        async with background(loop()):
            await asyncio.Event().wait()


async def test_cancelling_the_task_cancels_block_and_loops() -> None:
    begun = asyncio.Event()

    async def whole() -> None:
        async with background(asyncio.Event().wait()):  # type: ignore[arg-type]
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.ensure_future(whole())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
