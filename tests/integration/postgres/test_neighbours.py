"""A unit that ends because a row is there already, and those that share its transaction."""

from __future__ import annotations

import asyncio
from collections import Counter

from tests.integration.postgres.parts import opened

from cordata.errors import Conflict
from cordata.store import Tx


async def test_unit_that_fails_at_a_row_that_is_there_leaves_its_neighbours_alone(
    database: str,
) -> None:
    async with opened(database) as store:
        runs = Counter[str]()

        async def add_new(tx: Tx, name: str) -> None:
            runs[name] += 1
            if not await tx.execute("account.add_once", id=name, balance=0):
                raise Conflict(name)

        async def add(name: str) -> None:
            await store.run(lambda tx: add_new(tx, name))

        await add("x")
        found = await asyncio.gather(*map(add, "vwxyz"), return_exceptions=True)
        assert [type(one) for one in found] == [type(None)] * 2 + [Conflict] + [type(None)] * 2
        assert runs == {"v": 1, "w": 1, "x": 2, "y": 1, "z": 1}


async def test_unit_is_not_told_of_a_row_that_its_neighbour_adds_and_takes_back(
    database: str,
) -> None:
    async with opened(database) as store:

        async def add_and_fail(tx: Tx) -> None:
            await tx.execute("account.add_once", id="x", balance=0)
            await tx.execute("account.add_once", id="y", balance=0)
            raise ZeroDivisionError

        async def add(tx: Tx) -> None:
            if not await tx.execute("account.add_once", id="x", balance=1):
                raise Conflict("x")

        results = await asyncio.gather(
            store.run(add_and_fail), store.run(add), return_exceptions=True
        )
        assert isinstance(results[0], ZeroDivisionError) and results[1] is None
        [account] = await store.read(lambda tx: tx.fetch_all("account.all"))
        assert dict(account) == {"id": "x", "balance": 1}
