"""Large requests: few in memory, one read at a time."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest

from alpinehub.alpinebits import concurrency_limit
from alpinehub.alpinebits.concurrency_limit import MAX_BODIES, MAX_OF_ONE, ConcurrencyLimit
from alpinehub.alpinebits.document import LARGE_BYTES, MAX_BODY_BYTES
from alpinehub.alpinebits.transport_error import TransportError
from alpinehub.memory_budget import FREE_BYTES


def refused(held: ExitStack, one: ConcurrencyLimit, account_id: int, size: int) -> bool:
    return not held.enter_context(one.body(account_id)).grow_to(size)


def test_so_many_bodies_are_held_and_one_more_when_one_is_gone() -> None:
    one = ConcurrencyLimit()
    with ExitStack() as held:
        for account_id in range(MAX_BODIES):
            assert not refused(held, one, account_id, MAX_BODY_BYTES)
        assert refused(held, one, MAX_BODIES, LARGE_BYTES + 1)
        assert not refused(held, one, MAX_BODIES, FREE_BYTES)
    with ExitStack() as held:
        assert not refused(held, one, 1, LARGE_BYTES + 1)


def test_one_account_leaves_room_for_the_others() -> None:
    one = ConcurrencyLimit()
    with ExitStack() as held:
        for _ in range(MAX_OF_ONE):
            assert not refused(held, one, 1, MAX_BODY_BYTES)
        assert refused(held, one, 1, LARGE_BYTES + 1)
        assert not refused(held, one, 2, MAX_BODY_BYTES)


def test_bodies_that_are_not_large_have_a_bound_together() -> None:
    one, most = ConcurrencyLimit(), MAX_OF_ONE * MAX_BODY_BYTES // (LARGE_BYTES - FREE_BYTES)
    with ExitStack() as held:
        for account_id in (1, 2):
            for _ in range(most):
                assert not refused(held, one, account_id, LARGE_BYTES)
            assert refused(held, one, account_id, LARGE_BYTES)
        assert refused(held, one, 3, LARGE_BYTES)
        assert not refused(held, one, 3, FREE_BYTES)
    with ExitStack() as held:
        assert not refused(held, one, 1, MAX_BODY_BYTES)


async def test_large_documents_are_read_one_after_the_other() -> None:
    one = ConcurrencyLimit()
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
    monkeypatch.setattr(concurrency_limit, "WAIT_S", 0.0)
    one = ConcurrencyLimit()
    async with one.reading():
        with pytest.raises(TransportError) as caught:
            async with one.reading():
                pass
        assert caught.value.status == 503
    async with one.reading():  # the failed one left nothing behind
        pass
