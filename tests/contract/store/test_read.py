"""Reads on snapshots."""

from __future__ import annotations

import asyncio

import pytest
from tests.contract.store.conftest import Opener
from tests.contract.store.stores import add_account, balance

from cordata.errors import StoreUnavailable, TransactionTimeout
from cordata.store import Tx, UnitMisuse


async def test_read_sees_a_commit_when_run_has_returned(opened: Opener) -> None:
    async with opened() as one, opened() as two:
        for number in range(20):
            await add_account(one, str(number), number)
            assert await balance(two, str(number)) == number
            assert await balance(one, str(number)) == number


async def test_read_is_refused_when_it_writes(opened: Opener) -> None:
    async with opened() as store:

        async def unit(tx: Tx) -> None:
            await tx.execute("account.add", id="a", balance=1)

        with pytest.raises(UnitMisuse, match=r"account\.add"):
            await store.read(unit)
        assert await balance(store, "a") is None


async def test_read_does_not_wait_when_a_transaction_holds_the_write_lock(
    opened: Opener,
) -> None:
    async with opened() as one, opened() as two:
        await add_account(one, "a", 1)
        async with one.transaction() as tx:
            await tx.execute("account.change", id="a", amount=1)
            async with asyncio.timeout(60):
                assert await balance(one, "a") == 1
                assert await balance(two, "a") == 1
        assert await balance(two, "a") == 2


async def test_read_raises_what_the_unit_raised_when_it_fails(opened: Opener) -> None:
    async with opened() as store:

        async def unit(tx: Tx) -> None:
            raise LookupError("nothing there")

        with pytest.raises(LookupError, match="nothing there"):
            await store.read(unit)


async def test_read_sees_one_snapshot_when_others_write_meanwhile(opened: Opener) -> None:
    async with opened() as one, opened() as two:
        await add_account(one, "a", 1_000_000)  # however many the moves, it never comes to nothing
        await add_account(one, "b", 1_000_000)
        stop = asyncio.Event()

        async def move() -> None:
            async def unit(tx: Tx) -> None:
                await tx.execute("account.change", id="a", amount=-1)
                await tx.execute("account.change", id="b", amount=1)

            while not stop.is_set():
                await one.run(unit)

        async def total(tx: Tx) -> int:
            rows = [await tx.fetch_one("account.get", id=name) for name in ("a", "b")]
            return sum(row["balance"] for row in rows if row is not None)

        async with asyncio.TaskGroup() as group:
            group.create_task(move())
            for _ in range(200):
                assert await two.read(total) == 2_000_000
                await asyncio.sleep(0)
            stop.set()


async def test_unit_awaiting_something_else_is_refused_when_it_reads(opened: Opener) -> None:
    async with opened() as store:

        async def unit(tx: Tx) -> None:
            await asyncio.sleep(0)

        with pytest.raises(UnitMisuse, match="unit"):
            await store.read(unit)


async def test_read_is_stopped_when_it_takes_too_long(opened: Opener) -> None:
    async with opened(read_timeout_s=1.0) as store:
        with pytest.raises(TransactionTimeout, match="longer than 1 s") as raised:
            await store.read(lambda tx: tx.fetch_all("forever"))
        assert isinstance(raised.value, StoreUnavailable)  # to who cannot go on without it
        assert store.stats().state == "ok"
        assert await balance(store, "a") is None
