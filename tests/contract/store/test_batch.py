"""`run(unit, batch=True)`, `rows=`, `insert` and `lock=True`: the same promises on both stores."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from tests.contract.store.conftest import Opener
from tests.contract.store.stores import add_account, balance, notes

from cordata.errors import ConfigError, Conflict
from cordata.store import Tx
from cordata.store.queries import parse


@pytest.mark.parametrize("batch", [False, True])
async def test_all_is_stored_when_batched_units_insert_and_write(
    opened: Opener, batch: bool
) -> None:
    async def unit(tx: Tx, number: int) -> int:
        before = await tx.fetch_one("account.get", id="a")
        assert before is not None
        await tx.insert("account", id=f"n{number}", balance=number)
        await tx.insert("entry", account_id=f"n{number}", amount=number, note=f"{number:02}")
        await tx.write("account.change", rows=1, id="a", amount=1)
        return number

    async with opened() as store:
        await add_account(store, "a")
        units = [store.run(partial(unit, number=n), batch=batch) for n in range(40)]
        assert await asyncio.gather(*units) == [*range(40)]
        assert await balance(store, "a") == 40
        assert await balance(store, "n39") == 39
        assert await notes(store) == [f"{n:02}" for n in range(40)]


@pytest.mark.parametrize("batch", [False, True])
async def test_unit_fails_alone_when_it_inserts_a_key_that_is_there(
    opened: Opener, batch: bool
) -> None:
    async def unit(tx: Tx, name: str) -> None:
        await tx.insert("entry", account_id="a", amount=1, note=name)
        await tx.insert("account", id=name, balance=0)

    async with opened() as store:
        await add_account(store, "a")
        names = ["b", "a", "c", "d", "d", "e"]
        units = [store.run(partial(unit, name=n), batch=batch) for n in names]
        ended = await asyncio.gather(*units, return_exceptions=True)
        assert [isinstance(one, Conflict) for one in ended].count(True) == 2
        assert isinstance(ended[1], Conflict)
        assert await notes(store) == ["b", "c", "d", "e"]


@pytest.mark.parametrize("batch", [False, True])
async def test_nothing_of_a_unit_is_stored_when_it_changes_fewer_rows_than_it_says(
    opened: Opener, batch: bool
) -> None:
    async def unit(tx: Tx) -> None:
        await tx.write("account.change", rows=1, id="a", amount=5)
        await tx.write("account.change", rows=1, id="nobody", amount=1)

    async with opened() as store:
        await add_account(store, "a")
        with pytest.raises(Conflict, match=r"account\.change changed 0 rows instead of 1"):
            await store.run(unit, batch=batch)
        assert await balance(store, "a") == 0


@pytest.mark.parametrize("batch", [False, True])
async def test_unit_fails_alone_when_its_row_of_a_shared_statement_changes_nothing(
    opened: Opener, batch: bool
) -> None:
    async def unit(tx: Tx, number: int) -> None:
        await tx.insert("account", id=f"n{number}", balance=0)
        account = "nobody" if number == 7 else f"n{number}"  # which the same unit has added
        values = {"account_id": account, "amount": 1, "note": f"{number:02}"}
        rows = 1 if number % 2 else None  # the others do not say it
        await tx.write("entry.add_to_account", rows=rows, **values)

    async with opened() as store:
        units = [store.run(partial(unit, number=n), batch=batch) for n in range(40)]
        ended = await asyncio.gather(*units, return_exceptions=True)
        assert [n for n, one in enumerate(ended) if isinstance(one, Conflict)] == [7]
        assert await notes(store) == [f"{n:02}" for n in range(40) if n != 7]


@pytest.mark.parametrize("batch", [False, True])
async def test_exactly_one_of_the_units_succeeds_when_all_write_what_only_one_may(
    opened: Opener, batch: bool
) -> None:
    async def unit(tx: Tx) -> bool:
        row = await tx.fetch_one("account.get", id="stock")
        assert row is not None
        if not row["balance"]:
            return False
        await tx.write("account.set_from", rows=1, id="stock", old=1, new=0)
        return True

    async with opened() as one, opened() as two:
        await add_account(one, "stock", 1)
        ended = await asyncio.gather(
            *[store.run(unit, batch=batch) for store in [one, two] * 4], return_exceptions=True
        )
        assert [one for one in ended if not isinstance(one, Conflict)].count(True) == 1
        assert await balance(one, "stock") == 0


async def test_batched_unit_gets_what_it_wrote_when_it_does_what_no_batch_can(
    opened: Opener,
) -> None:
    async def unit(tx: Tx) -> int:
        await tx.insert("account", id="new", balance=1)
        assert await tx.execute("account.change", id="new", amount=2) == 1
        row = await tx.fetch_one("account.get", id="new", lock=True)
        assert row is not None
        return int(row["balance"])

    async with opened() as store:
        assert await store.run(unit, batch=True) == 3
        assert await balance(store, "new") == 3


async def test_each_unit_takes_one_when_all_lock_the_stock_and_write_it_less_one(
    opened: Opener,
) -> None:
    async def unit(tx: Tx) -> int:
        (row,) = await tx.fetch_all("account.get", id="stock", lock=True)
        await tx.write("account.set", rows=1, id="stock", balance=row["balance"] - 1)
        return int(row["balance"])

    async with opened() as one, opened() as two:
        await add_account(one, "stock", 20)
        stores = [one, two] * 10
        seen = await asyncio.gather(*[store.run(unit) for store in stores])
        assert sorted(seen) == [*range(1, 21)]
        assert await balance(one, "stock") == 0


async def test_transaction_inserts_counts_and_locks_as_a_unit_does(opened: Opener) -> None:
    async with opened() as store:
        await add_account(store, "a", 7)
        async with store.transaction() as tx:
            row = await tx.fetch_one("account.get", id="a", lock=True)
            assert row is not None and row["balance"] == 7
            await tx.insert("entry", account_id="a", amount=1, note="one")
            await tx.write("account.set", rows=1, id="a", balance=8)
        assert await balance(store, "a") == 8 and await notes(store) == ["one"]
        with pytest.raises(Conflict, match="instead of 2"):
            async with store.transaction() as tx:
                await tx.insert("entry", account_id="a", amount=1, note="two")
                await tx.write("account.set", rows=2, id="a", balance=9)
        assert await balance(store, "a") == 8 and await notes(store) == ["one"]


async def test_insert_is_refused_when_the_table_or_a_column_is_no_plain_name(
    opened: Opener,
) -> None:
    async with opened() as store:
        for table, column in (("account; --", "id"), ("account", 'id") VALUES (1); --')):

            async def unit(tx: Tx, table: str = table, column: str = column) -> None:
                await tx.insert(table, **{column: "x"})

            with pytest.raises(ConfigError, match="not a plain name"):
                await store.run(unit)


def test_query_is_refused_when_a_parameter_has_the_name_of_an_option() -> None:
    problems: list[str] = []
    parse("-- name: x\nSELECT :rows, :lock", "x.sql", problems)
    assert "'lock'" in problems[0]
