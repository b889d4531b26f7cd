"""A topic that is kept: what a process commits is told to others only if it is not taken here."""

from __future__ import annotations

import asyncio

from tests.contract.store.conftest import Opener

from cordata import clock
from cordata.store import Store, Tx
from cordata.store.topic import PATIENCE_S


async def commit(store: Store) -> None:
    """A unit that has something to tell."""

    async def unit(tx: Tx) -> None:
        tx.notify("t")

    await store.run(unit)


async def test_others_are_not_told_of_what_was_taken_here(opened: Opener) -> None:
    async with opened() as one, opened() as two:
        keeper = one.keep("t")
        for _ in range(3):
            mark = keeper.mark()
            await commit(one)
            assert await one.wait("t", 1.0) is True
            keeper.done(mark)
            assert keeper.owes  # it came after the mark
            keeper.done(keeper.mark())
        assert not keeper.owes
        assert await two.wait("t", 3 * PATIENCE_S) is False


async def test_others_are_told_when_nobody_looks_here_in_time(opened: Opener) -> None:
    async with opened() as one, opened() as two:
        one.keep("t")
        waiting = asyncio.ensure_future(two.wait("t", 5.0))
        await asyncio.sleep(0)
        begun = clock.monotonic()
        await commit(one)
        assert await waiting is True
        assert clock.monotonic() - begun >= PATIENCE_S / 2


async def test_others_are_told_when_the_look_was_too_early(opened: Opener) -> None:
    async with opened() as one, opened() as two:
        keeper = one.keep("t")
        mark = keeper.mark()
        await commit(one)
        keeper.done(mark)
        assert await two.wait("t", 5.0) is True


async def test_others_are_told_when_it_is_passed_on_or_kept_no_longer(opened: Opener) -> None:
    async with opened() as one, opened() as two:
        keeper = one.keep("t")
        await commit(one)
        keeper.pass_on()
        assert await two.wait("t", 5.0) is True
        keeper.pass_on()
        assert await two.wait("t", 2 * PATIENCE_S) is False  # they know
        await commit(one)
        keeper.close()
        assert await two.wait("t", 5.0) is True
        await commit(one)
        assert await two.wait("t", 5.0) is True


async def test_others_are_told_when_the_store_is_closed_before_the_look(opened: Opener) -> None:
    async with opened() as two:
        async with opened() as one:
            one.keep("t")
            await commit(one)
        assert await two.wait("t", 5.0) is True


async def test_others_are_told_at_once_of_what_is_not_kept_and_of_what_is_said_to_all(
    opened: Opener,
) -> None:
    async with opened() as one, opened() as two:
        one.keep("other")
        await commit(one)
        assert await two.wait("t", 5.0) is True
        keeper = one.keep("t")
        one.notify("t")
        assert await two.wait("t", 5.0) is True
        assert not keeper.owes
