"""Large requests: few in memory, one read at a time."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest

from alpinehub.alpinebits import turns
from alpinehub.alpinebits.refusal import Refusal
from alpinehub.alpinebits.turns import MAX_BODIES, Turns


def test_so_many_bodies_are_held_and_one_more_when_one_is_gone() -> None:
    one = Turns()
    with ExitStack() as held:
        for _ in range(MAX_BODIES):
            held.enter_context(one.body())
        with pytest.raises(Refusal) as caught, one.body():
            pass
        assert caught.value.status == 503
    with one.body():
        pass


async def test_large_documents_are_read_one_after_the_other() -> None:
    one = Turns()
    at_once = most = 0

    async def read() -> None:
        nonlocal at_once, most
        async with one.reading():
            at_once += 1
            most = max(most, at_once)
            await asyncio.sleep(0)
            at_once -= 1

    async with asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(read())
    assert most == 1


async def test_who_waits_too_long_is_told_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "WAIT_S", 0.0)
    one = Turns()
    async with one.reading():
        with pytest.raises(Refusal) as caught:
            async with one.reading():
                pass
        assert caught.value.status == 503
    async with one.reading():  # the failed one left nothing behind
        pass
