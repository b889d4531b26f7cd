"""Isolation is one contract on both stores: what units that run at once may see of each other.

A unit sees committed state and its own writes. A row that it changes is as it read it. Rows that it
only read, or did not find, another unit may change or add before it commits: that takes a
constraint, and one that a unit breaks has it run again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import partial

import pytest
from tests.contract.store.conftest import Opener
from tests.contract.store.stores import add_account, balance

from cordata.store import Tx

ACCOUNTS = ("a", "b", "c")
START = 100
#: How a unit reads the row that it is going to change.
READS = ("account.get", "account.get_to_change", "account.get_to_share")

Step = Callable[[Tx], Awaitable[object]]


async def move(tx: Tx, source: str, target: str, read: str, *, later: bool) -> None:
    """Takes 1 from an account and gives it to another: reads both, then writes what it reckoned."""
    held = [await tx.fetch_one(read, id=name) for name in (source, target)]
    for name, row, amount in zip((source, target), held, (-1, 1), strict=True):
        assert row is not None
        write = tx.write if later else tx.execute
        await write("account.set", id=name, balance=row["balance"] + amount)


async def add(tx: Tx, name: str, counts: list[int]) -> None:
    """Adds to an account what others add to as well, without a look at it."""
    await tx.write("account.change", id=name, amount=1)
    await tx.write("account.change", id="given", amount=1)


async def look(tx: Tx, name: str, counts: list[int]) -> None:
    """Sees all that there is at one moment."""
    rows = await tx.fetch_all("account.all")
    held = {row["id"]: int(row["balance"]) for row in rows if len(row["id"]) == 1}
    given = next(int(row["balance"]) for row in rows if row["id"] == "given")
    counts.append(sum(held.values()) - given)


async def find_or_add(tx: Tx, name: str, counts: list[int]) -> None:
    """Adds a row that is not there."""
    row = await tx.fetch_one("account.get", id=f"new {name}")
    if row is None:
        await tx.write("account.add", id=f"new {name}", balance=1)


def unit_of(draw: random.Random, counts: list[int]) -> Step:
    """One of what applications do."""
    if draw.random() < 0.6:
        source, target = draw.sample(ACCOUNTS, 2)
        later = draw.random() < 0.5
        return partial(move, source=source, target=target, read=draw.choice(READS), later=later)
    kind = draw.choice((add, look, find_or_add))
    return partial(kind, name=draw.choice(ACCOUNTS), counts=counts)


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("seed", range(6))
async def test_nothing_is_lost_when_units_change_what_they_read_at_once(
    opened: Opener, processes: int, seed: int
) -> None:
    draw, counts = random.Random(seed), list[int]()
    async with opened() as one, opened() as two:
        for name in (*ACCOUNTS, "given"):
            await add_account(one, name, START if len(name) == 1 else 0)
        for _ in range(4):
            units = [unit_of(draw, counts) for _ in range(draw.choice((2, 3, 8, 16)))]
            stores = [draw.choice((one, two)[:processes]) for _ in units]
            await asyncio.gather(
                *[store.run(unit) for store, unit in zip(stores, units, strict=True)]
            )
        held = [await balance(one, name) or 0 for name in ACCOUNTS]
        assert sum(held) - (await balance(one, "given") or 0) == START * len(ACCOUNTS)
        assert set(counts) <= {START * len(ACCOUNTS)}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("count", [2, 16])
@pytest.mark.parametrize("processes", [1, 2])
async def test_each_unit_takes_one_when_all_read_the_stock_and_write_it_less_one(
    opened: Opener, processes: int, count: int, read: str
) -> None:
    async def take(tx: Tx) -> int:
        row = await tx.fetch_one(read, id="stock")
        assert row is not None
        await tx.execute("account.set", id="stock", balance=row["balance"] - 1)
        return int(row["balance"])

    async with opened() as one, opened() as two:
        await add_account(one, "stock", count * 4)
        seen = list[int]()
        for _ in range(4):
            stores = [(one, two)[number % processes] for number in range(count)]
            seen += await asyncio.gather(*[store.run(take) for store in stores])
        assert sorted(seen) == [*range(1, count * 4 + 1)]
        assert await balance(one, "stock") == 0
