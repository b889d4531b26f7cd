"""What a unit raises is its caller's, whatever it is: nobody else notices."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest
from tests.contract.store.conftest import Opener
from tests.contract.store.stores import STORES, add_account, balance, notes

from cordata.store import Store, Tx

ERRORS = [
    SystemExit(3),
    KeyboardInterrupt(),
    GeneratorExit(),
    asyncio.CancelledError(),
    BaseExceptionGroup("", [SystemExit(3)]),
]
#: Very many, and nothing that a proxy could change.
pytestmark = pytest.mark.parametrize("opened", STORES, indirect=True)
Wild = Callable[[Tx], Awaitable[None]]


def at_once(error: BaseException) -> Wild:
    async def unit(tx: Tx) -> None:
        raise error

    return unit


def after_a_read(error: BaseException) -> Wild:
    async def unit(tx: Tx) -> None:
        await tx.fetch_one("account.get", id="a")
        raise error

    return unit


def after_a_write(error: BaseException) -> Wild:
    async def unit(tx: Tx) -> None:
        await tx.execute("entry.add", account_id="a", amount=1, note="wild")
        raise error

    return unit


def alone(error: BaseException) -> Wild:
    """Reads what it wrote, so that it gets a transaction of its own on PostgreSQL."""

    async def unit(tx: Tx) -> None:
        await tx.execute("entry.add", account_id="a", amount=1, note="wild")
        await tx.fetch_one("account.get", id="a")
        raise error

    return unit


def on_its_way_out(error: BaseException) -> Wild:
    """Awaits what no unit may, and raises while it is left."""

    async def unit(tx: Tx) -> None:
        try:
            await asyncio.sleep(1)
        finally:
            raise error

    return unit


@pytest.mark.parametrize("count", [0, 1, 6])
@pytest.mark.parametrize("wild", [at_once, after_a_read, after_a_write, alone])
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_failure_is_its_callers_alone_when_a_unit_raises_anything(
    opened: Opener, error: BaseException, wild: Callable[[BaseException], Wild], count: int
) -> None:
    async with opened() as store, asyncio.timeout(60):
        await add_account(store, "a")
        for first in (0, count):  # the second time it is known what fits in with others
            failed, *others = await asyncio.gather(
                _kind(store, wild(error)), *(_note(store, first + n) for n in range(count))
            )
            assert failed is (RuntimeError if isinstance(error, GeneratorExit) else type(error))
            assert others == [None] * count
        assert await notes(store) == [f"{n:03d}" for n in range(2 * count)]
        await store.run(lambda tx: tx.execute("account.change", id="a", amount=1))
        assert await balance(store, "a") == 2 * count + 1
        assert store.waiting == 0


@pytest.mark.parametrize("count", [0, 3])
@pytest.mark.parametrize("error", [*ERRORS, ValueError()], ids=lambda error: type(error).__name__)
async def test_neighbours_are_committed_when_a_unit_raises_while_it_is_left(
    opened: Opener, error: BaseException, count: int
) -> None:
    async with opened() as store, asyncio.timeout(60):
        await add_account(store, "a")
        failed, *_ = await asyncio.gather(
            _kind(store, on_its_way_out(error)), *(_note(store, n) for n in range(count))
        )
        assert failed is not None
        assert failed.__name__ == "UnitMisuse"
        assert await notes(store) == [f"{n:03d}" for n in range(count)]


@pytest.mark.parametrize("count", [0, 3])
async def test_caller_is_told_when_a_plain_function_raises_stop_iteration(
    opened: Opener, count: int
) -> None:
    def unit(tx: Tx) -> Awaitable[None]:
        raise StopIteration

    async with opened() as store, asyncio.timeout(60):
        await add_account(store, "a")
        failed, *_ = await asyncio.gather(
            _kind(store, unit), *(_note(store, n) for n in range(count))
        )
        assert failed is RuntimeError
        assert await notes(store) == [f"{n:03d}" for n in range(count)]


def cancelling(alone: bool) -> Wild:
    """Cancels the task that it finds itself in, which is not its own."""

    async def unit(tx: Tx) -> None:
        await tx.execute("entry.add", account_id="a", amount=1, note="wild")
        if alone:
            await tx.fetch_one("account.get", id="a")
        task = asyncio.current_task()
        if task is not None:  # on a store with a thread of its own there is none
            task.cancel()
        await tx.fetch_one("account.get", id="a")

    return unit


@pytest.mark.parametrize("count", [0, 3])
@pytest.mark.parametrize("alone", [False, True])
async def test_store_goes_on_when_a_unit_cancels_the_task_it_is_in(
    opened: Opener, alone: bool, count: int
) -> None:
    async with opened() as store, asyncio.timeout(60):
        await add_account(store, "a")
        for first in (0, count):
            await asyncio.gather(
                _kind(store, cancelling(alone)),
                *(_kind(store, partial(_note_in, number=first + n)) for n in range(count)),
            )
        await _note(store, 99)
        assert "099" in await notes(store)
        assert store.waiting == 0


async def _note_in(tx: Tx, *, number: int) -> None:
    await tx.execute("entry.add", account_id="a", amount=1, note=f"{number:03d}")


async def _kind(store: Store, unit: Wild) -> type[BaseException] | None:
    """In the task of whoever asks: a task that ends by SystemExit ends the loop."""
    try:
        await store.run(unit)
    except BaseException as error:  # noqa: BLE001 - it is what is asked for
        return type(error)
    return None


async def _note(store: Store, number: int) -> None:
    async def unit(tx: Tx) -> None:
        await tx.execute("entry.add", account_id="a", amount=1, note=f"{number:03d}")
        await tx.execute("account.change", id="a", amount=1)

    await store.run(unit)


async def test_unit_is_not_counted_when_it_failed_and_its_neighbour_was_committed(
    opened: Opener,
) -> None:
    async def fails(tx: Tx) -> None:
        await tx.execute("account.add", id="b", balance=0)
        raise ValueError

    async with opened() as store:
        before = store.stats().units
        await asyncio.gather(add_account(store, "a"), store.run(fails), return_exceptions=True)
        assert store.stats().units == before + 1
