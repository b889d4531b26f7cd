"""Units of work in shared commits."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re

import pytest
from tests.contract.store.conftest import Opener
from tests.contract.store.stores import add_account, balance, notes
from tests.waiting import until_async

from cordata.errors import (
    ConfigError,
    Conflict,
    PermanentError,
    StatementError,
    StoreUnavailable,
)
from cordata.log import request_id
from cordata.store import Tx, UnitMisuse
from cordata.unawaited import NeverAwaited


async def test_run_returns_the_unit_result_when_it_is_committed(opened: Opener) -> None:
    async with opened() as store, opened() as other:

        async def unit(tx: Tx) -> str:
            assert await tx.execute("account.add", id="a", balance=1) == 1
            return "done"

        assert await store.run(unit) == "done"
        assert await balance(other, "a") == 1


async def test_batched_units_share_commits_when_they_run_at_once(opened: Opener) -> None:
    async with opened() as store:
        await add_account(store, "a")
        before = store.stats()

        async def deposit(number: int) -> int:
            async def unit(tx: Tx) -> int:
                await tx.write("account.change", id="a", amount=1)
                await tx.write("entry.add", account_id="a", amount=1, note=f"{number:03d}")
                return number

            return await store.run(unit, batch=True)

        assert await asyncio.gather(*map(deposit, range(200))) == list(range(200))
        after = store.stats()
        assert await balance(store, "a") == 200
        assert len(await notes(store)) == 200
        assert after.units - before.units == 200
        assert after.commits - before.commits <= 20
        assert store.waiting == 0


async def test_unit_leaves_nothing_when_it_raises(opened: Opener) -> None:
    async with opened() as store:

        async def unit(tx: Tx) -> None:
            await tx.execute("account.add", id="a", balance=1)
            raise LookupError("changed its mind")

        with pytest.raises(LookupError, match="changed its mind"):
            await store.run(unit)
        assert await balance(store, "a") is None


async def test_neighbours_are_committed_when_one_unit_fails(opened: Opener) -> None:
    async with opened() as store:
        await add_account(store, "a")

        async def deposit(number: int) -> None:
            async def unit(tx: Tx) -> None:
                await tx.execute("entry.add", account_id="a", amount=1, note=f"{number:03d}")
                if number % 3 == 0:
                    raise LookupError(str(number))
                if number % 3 == 1:
                    await tx.execute("entry.add", account_id="?", amount=1, note=f"x{number}")

            await store.run(unit)

        results = await asyncio.gather(*map(deposit, range(30)), return_exceptions=True)
        kinds = [type(result) for result in results]
        assert kinds == [LookupError, Conflict, type(None)] * 10
        assert await notes(store) == [f"{n:03d}" for n in range(30) if n % 3 == 2]


async def test_conflict_names_the_constraint_when_a_key_exists(opened: Opener) -> None:
    async with opened() as store:
        await add_account(store, "a")
        with pytest.raises(Conflict) as caught:
            await add_account(store, "a")
        assert "account" in caught.value.constraint
        assert await balance(store, "a") == 0


@pytest.mark.parametrize("batch", [False, True])
async def test_only_the_unit_fails_whose_reference_is_missing_at_the_commit(
    opened: Opener, batch: bool
) -> None:
    async with opened() as store:
        await add_account(store, "a")

        async def promise(number: int) -> None:
            async def unit(tx: Tx) -> None:
                await tx.write("promise.add", account_id="b" if number == 3 else "a")

            await store.run(unit, batch=batch)

        results = await asyncio.gather(*map(promise, range(6)), return_exceptions=True)
        assert [n for n, result in enumerate(results) if result is not None] == [3]
        assert isinstance(results[3], Conflict)
        with pytest.raises(Conflict):
            async with store.transaction() as tx:
                await tx.write("promise.add", account_id="b")
        assert store.stats().state == "ok"


async def test_unit_fails_with_its_statement_when_it_swallows_the_error(opened: Opener) -> None:
    async with opened() as store:
        await add_account(store, "a")

        async def unit(tx: Tx) -> str:
            await tx.execute("account.add", id="b", balance=1)
            try:
                await tx.execute("account.add", id="a", balance=1)
            except Conflict:
                pass
            with pytest.raises(Conflict):
                await tx.fetch_one("account.get", id="a")
            return "all is well"

        with pytest.raises(Conflict):
            await store.run(unit)
        assert await balance(store, "b") is None


@pytest.mark.parametrize("values", [{"note": "\ud800"}, {"amount": 2**70}])
async def test_unit_fails_whole_when_it_swallows_that_a_value_cannot_be_stored(
    opened: Opener, values: dict[str, object]
) -> None:
    async with opened() as store:
        await add_account(store, "a")

        async def unit(tx: Tx) -> None:
            await tx.execute("account.change", id="a", amount=1)
            with contextlib.suppress(PermanentError):
                entry = {"account_id": "a", "amount": 1, "note": "n", **values}
                await tx.execute("entry.add", **entry)

        with pytest.raises(PermanentError, match=r"entry\.add"):
            await store.run(unit)
        assert await balance(store, "a") == 0


async def test_insert_once_counts_zero_when_the_row_exists(opened: Opener) -> None:
    async with opened() as store:

        async def unit(tx: Tx) -> tuple[int, int]:
            first = await tx.execute("account.add_once", id="a", balance=1)
            return first, await tx.execute("account.add_once", id="a", balance=2)

        assert await store.run(unit) == (1, 0)


async def test_returning_gives_rows_when_the_statement_writes(opened: Opener) -> None:
    async with opened() as store:
        await add_account(store, "a", 10)

        async def unit(tx: Tx) -> int:
            row = await tx.fetch_one("account.take", id="a", amount=4)
            assert row is not None and list(row.keys()) == ["balance"]
            return int(row["balance"])

        assert await store.run(unit) == 6
        assert await balance(store, "a") == 6


async def test_unit_is_refused_with_its_mistake_when_it_awaits_something_else(
    opened: Opener,
) -> None:
    async with opened() as store:

        async def sleeps(tx: Tx) -> None:
            await tx.execute("account.add", id="a", balance=1)
            await asyncio.sleep(0)

        async def waits(tx: Tx) -> None:
            await asyncio.get_running_loop().create_future()

        for unit in (sleeps, waits):
            with pytest.raises(UnitMisuse, match=unit.__name__) as caught:
                await store.run(unit)
            assert "nothing but" in (caught.value.hint or "")
            assert re.search(r"\btest_run\.py:\d+", str(caught.value)) and caught.value.shown
        assert await balance(store, "a") is None


@pytest.mark.parametrize("form", ["run", "batch", "read", "transaction"])
async def test_unit_fails_whole_when_it_forgets_an_await(opened: Opener, form: str) -> None:
    async def forgetful(tx: Tx) -> None:
        if form == "read":
            tx.fetch_one("account.get", id="a")  # type: ignore[unused-coroutine]
            return
        await tx.execute("account.add", id="a", balance=1)
        tx.execute("account.change", id="a", amount=1)  # type: ignore[unused-coroutine]

    async with opened() as store:
        for _ in range(2):  # Python itself warns of the first one only
            with pytest.raises(NeverAwaited, match=r"execute' was|fetch_one' was") as caught:
                if form == "transaction":
                    async with store.transaction() as tx:
                        await forgetful(tx)
                elif form == "batch":
                    others = [store.run(lambda tx: tx.fetch_all("account.all")) for _ in range(3)]
                    failed, *rest = await asyncio.gather(
                        store.run(forgetful), *others, return_exceptions=True
                    )
                    assert rest == [[], [], []]
                    assert isinstance(failed, NeverAwaited)
                    raise failed
                else:
                    await (store.run if form == "run" else store.read)(forgetful)
            assert "test_run.py:" in str(caught.value) and caught.value.shown
        assert await balance(store, "a") is None


async def test_query_call_names_what_is_wrong_when_parameters_do_not_fit(opened: Opener) -> None:
    async with opened() as store:

        async def lacks(tx: Tx) -> None:
            await tx.execute("account.add", id="a")

        async def exceeds(tx: Tx) -> None:
            await tx.execute("account.add", id="a", balance=1, colour="red")

        async def unknown(tx: Tx) -> None:
            await tx.execute("acount.add", id="a", balance=1)

        for unit, text in ((lacks, "balance"), (exceeds, "colour"), (unknown, "acount.add")):
            with pytest.raises(ConfigError, match=text):
                await store.run(unit)
        assert await notes(store) == []


@pytest.mark.parametrize("form", ["run", "batch", "read", "transaction"])
@pytest.mark.parametrize(
    ("query", "params", "said"),
    [
        ("lost.add", {"id": "eva@example.com"}, "lost"),
        ("account.lost", {"id": "eva@example.com"}, "colour"),
        ("account.misspelt", {}, "SELEKT"),
        ("account.get", {"id": {"guest": "eva@example.com"}}, "dict"),
    ],
)
async def test_statement_that_cannot_run_says_why_and_quotes_no_value(
    opened: Opener, query: str, params: dict[str, object], said: str, form: str
) -> None:
    if form == "read" and query in ("lost.add", "account.misspelt"):
        pytest.skip("for all that is known it writes, which a read cannot")

    async def unit(tx: Tx) -> None:
        await (tx.execute if query == "lost.add" else tx.fetch_all)(query, **params)

    async with opened() as store:
        with pytest.raises(StatementError, match=f"^{query}: .*{said}") as caught:
            if form == "transaction":
                async with store.transaction() as tx:
                    await unit(tx)
            elif form == "batch":
                others = [add_account(store, str(number)) for number in range(4)]
                failed, *rest = await asyncio.gather(
                    store.run(unit), *others, return_exceptions=True
                )
                assert rest == [None] * 4
                raise failed or AssertionError
            else:
                await (store.run if form == "run" else store.read)(unit)
        assert "eva" not in str(caught.value) and caught.value.shown
        if said in ("lost", "colour"):
            assert "app.migrations()" in (caught.value.hint or "")


async def test_unit_runs_wholly_or_not_at_all_when_its_caller_is_cancelled(
    opened: Opener,
) -> None:
    async with opened() as store:
        await add_account(store, "a")

        async def deposit(number: int) -> None:
            async def unit(tx: Tx) -> None:
                await tx.execute("entry.add", account_id="a", amount=1, note=f"{number:03d}-1")
                await tx.execute("entry.add", account_id="a", amount=1, note=f"{number:03d}-2")

            await store.run(unit)

        for round_ in range(20):
            tasks = [asyncio.ensure_future(deposit(round_ * 10 + n)) for n in range(10)]
            for _ in range(round_ % 5):
                await asyncio.sleep(0)
            for task in tasks[::2]:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        found = await notes(store)
        firsts = {note[:3] for note in found if note.endswith("-1")}
        seconds = {note[:3] for note in found if note.endswith("-2")}
        assert firsts == seconds
        assert {f"{n:03d}" for n in range(200) if n % 2} <= firsts
        # Who was cancelled may still be on his way out.
        await until_async(lambda: not store.waiting)


async def test_unit_sees_the_context_of_its_caller_when_batches_are_shared(
    opened: Opener,
) -> None:
    async with opened() as store:

        async def one(number: int) -> str:
            request_id.set(f"r{number}")

            async def unit(tx: Tx) -> str:
                await tx.publish("t", {"n": number})
                return request_id.get()

            return await store.run(unit)

        ids = await asyncio.gather(*map(one, range(8)))
        assert list(ids) == [f"r{n}" for n in range(8)]

        async def headers(tx: Tx) -> list[str]:
            return [row["headers"] for row in await tx.fetch_all("event.rows")]

        found = [json.loads(text)["request_id"] for text in await store.read(headers)]
        assert sorted(found) == [f"r{n}" for n in range(8)]


async def test_run_is_refused_at_once_when_too_many_wait(opened: Opener) -> None:
    async with opened(max_waiting=10) as store:
        await add_account(store, "a")

        async def unit(tx: Tx) -> None:
            await tx.execute("account.change", id="a", amount=1)

        results = await asyncio.gather(
            *(store.run(unit) for _ in range(25)), return_exceptions=True
        )
        refused = [r for r in results if isinstance(r, StoreUnavailable)]
        assert len(refused) == 15
        assert await balance(store, "a") == 10


async def test_two_stores_take_turns_when_both_change_what_they_read(opened: Opener) -> None:
    async with opened() as one, opened() as two:
        await add_account(one, "a")

        async def deposit(number: int) -> None:
            async def unit(tx: Tx) -> None:
                row = await tx.fetch_one("account.get_to_change", id="a")
                assert row is not None
                await tx.execute("account.change", id="a", amount=1)
                note = f"{row['balance']:04d}"  # unique: two units never read the same balance
                await tx.execute("entry.add", account_id="a", amount=1, note=note)

            await (one if number % 2 else two).run(unit)

        await asyncio.gather(*map(deposit, range(300)))
        assert await balance(one, "a") == 300


async def test_store_refuses_calls_when_it_is_closed(opened: Opener) -> None:
    async with opened() as store:
        pass
    with pytest.raises(StoreUnavailable):
        await add_account(store, "a")
    with pytest.raises(StoreUnavailable):
        await notes(store)
    await store.close()


async def test_store_finishes_what_waits_when_two_close_it_at_once(opened: Opener) -> None:
    async with opened() as store, asyncio.timeout(60):
        await asyncio.gather(add_account(store, "a"), store.close(), store.close())


async def test_write_is_done_when_the_unit_has_ended_or_reads_it(opened: Opener) -> None:
    async with opened() as store:

        async def unit(tx: Tx) -> int:
            await tx.write("account.add", id="a", balance=1)
            await tx.write("account.change", id="a", amount=4)
            row = await tx.fetch_one("account.get", id="a")
            await tx.write("account.change", id="a", amount=10)
            assert row is not None
            return int(row["balance"])

        assert await store.run(unit) == 5
        assert await balance(store, "a") == 15
        async with store.transaction() as tx:
            await tx.write("account.change", id="a", amount=5)
        assert await balance(store, "a") == 20


async def test_unit_fails_whole_when_a_write_does(opened: Opener) -> None:
    async with opened() as store:
        await add_account(store, "a")

        async def unit(tx: Tx) -> None:
            await tx.write("account.add", id="b", balance=1)
            await tx.write("account.add", id="a", balance=1)

        with pytest.raises(Conflict):
            await store.run(unit)
        assert await balance(store, "b") is None
