"""`cordata.testing.race`: what two units do that have both read before either of them writes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from tests.contract.store.conftest import Opener
from tests.contract.store.stores import add_account, balance

from cordata.errors import Conflict, TransactionStale
from cordata.store import Store, Tx
from cordata.testing import race

Take = Callable[[Store, str], Awaitable[int]]


async def take_one(tx: Tx, read: str) -> int:
    """Reads the stock and writes it less one; what it read."""
    row = await tx.fetch_one(read, id="stock")
    assert row is not None
    await tx.execute("account.set", id="stock", balance=row["balance"] - 1)
    return int(row["balance"])


async def in_a_unit(store: Store, read: str) -> int:
    return await store.run(lambda tx: take_one(tx, read))


async def in_a_transaction(store: Store, read: str) -> int:
    """As a handler that is called again when what it had read is stale."""
    while True:
        try:
            async with store.transaction() as tx:
                return await take_one(tx, read)
        except TransactionStale:
            continue


@pytest.mark.parametrize("take", [in_a_unit, in_a_transaction])
@pytest.mark.parametrize("read", ["account.get", "account.get_to_change", "account.get_to_share"])
async def test_no_update_is_lost_when_both_change_what_they_read(
    opened: Opener, take: Take, read: str
) -> None:
    async with opened() as store:
        await add_account(store, "stock", 10)
        assert await race(take(store, read), take(store, read)) == (10, 9)
        assert await balance(store, "stock") == 8


async def test_second_unit_finds_the_row_when_a_key_keeps_it_from_adding_it(opened: Opener) -> None:
    async def get_or_create(tx: Tx) -> bool:
        if await tx.fetch_one("account.get", id="a") is not None:
            return False
        await tx.execute("account.add", id="a", balance=0)
        return True

    async with opened() as store:
        assert await race(store.run(get_or_create), store.run(get_or_create)) == (True, False)


async def test_race_shows_that_a_decision_on_rows_which_are_only_read_needs_a_constraint(
    opened: Opener,
) -> None:
    """Each closes one account if the other one is open, and both end up closed."""

    async def close(tx: Tx, name: str) -> None:
        held = {row["id"]: row["balance"] for row in await tx.fetch_all("account.all")}
        if sum(held.values()) > 1:
            await tx.execute("account.set", id=name, balance=0)

    async with opened() as store:
        for name in ("a", "b"):
            await add_account(store, name, 1)
        await race(store.run(lambda tx: close(tx, "a")), store.run(lambda tx: close(tx, "b")))
        left = [await balance(store, name) for name in ("a", "b")]
        assert left == ([0, 1] if opened.dialect == "sqlite" else [0, 0])


async def test_race_returns_and_raises_what_the_two_do_when_they_write_nothing_or_fail(
    opened: Opener,
) -> None:
    async def fail() -> None:
        raise LookupError("of the first")

    async with opened() as store:
        assert await race(balance(store, "none"), balance(store, "none")) == (None, None)
        with pytest.raises(LookupError, match="of the first"):
            await race(fail(), add_account(store, "b"))
        assert await balance(store, "b") == 0
        with pytest.raises(Conflict):
            await race(add_account(store, "a"), add_account(store, "a"))
        assert await balance(store, "a") == 0
