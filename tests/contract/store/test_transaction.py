"""The solo form."""

from __future__ import annotations

import asyncio

import pytest
from tests.contract.store.conftest import Opener
from tests.contract.store.stores import add_account, balance, notes

from cordata.context import EventContext
from cordata.errors import (
    AlreadySeen,
    Conflict,
    StoreUnavailable,
    TransactionStale,
    TransactionTimeout,
)
from cordata.store import Store, Tx, UnitMisuse
from cordata.vault import Vault


async def test_transaction_commits_at_its_end_when_it_awaited_other_things(
    opened: Opener,
) -> None:
    async with opened() as store, opened() as other:
        async with store.transaction() as tx:
            assert await tx.fetch_one("account.get", id="a") is None
            await asyncio.sleep(0.01)
            await tx.execute("account.add", id="a", balance=1)
            await asyncio.sleep(0.01)
            await tx.execute("account.change", id="a", amount=1)
            row = await tx.fetch_one("account.get", id="a")
            assert row is not None and row["balance"] == 2
            assert await balance(other, "a") is None
        assert await balance(other, "a") == 2


async def test_commit_is_counted_when_a_transaction_wrote(opened: Opener) -> None:
    async with opened() as store:
        before = store.stats()
        async with store.transaction() as tx:
            assert await tx.fetch_one("account.get", id="a") is None
        async with store.transaction() as tx:
            await tx.execute("account.add", id="a", balance=1)
        after = store.stats()
        assert after.commits - before.commits == after.units - before.units == 1


async def test_statements_take_turns_when_a_body_starts_several_at_once(opened: Opener) -> None:
    async with opened() as store, opened() as other:
        held = asyncio.create_task(hold_briefly(other))
        await asyncio.sleep(0.05)
        async with store.transaction() as tx:
            await asyncio.gather(
                *(tx.execute("account.add", id=f"{n}", balance=n) for n in range(20))
            )
        await held
        rows = await store.read(lambda tx: tx.fetch_all("account.all"))
        assert len(rows) == 21


async def test_writes_that_a_body_starts_together_are_all_committed(opened: Opener) -> None:
    async with opened() as store:
        async with store.transaction() as tx:
            assert await tx.fetch_one("account.get", id="0") is None
            await asyncio.gather(
                tx.fetch_all("entry.notes"),
                *(tx.write("account.add", id=f"{n}", balance=n) for n in range(20)),
            )
        rows = await store.read(lambda tx: tx.fetch_all("account.all"))
        assert len(rows) == 20


async def hold_briefly(store: Store) -> None:
    """Makes the first write of another transaction wait, on SQLite."""
    async with store.transaction() as tx:
        await tx.execute("account.add", id="held", balance=0)
        await asyncio.sleep(0.2)


async def test_transaction_leaves_nothing_when_its_body_raises(opened: Opener) -> None:
    async with opened() as store:
        with pytest.raises(LookupError):
            async with store.transaction() as tx:
                await tx.execute("account.add", id="a", balance=1)
                raise LookupError
        assert await balance(store, "a") is None
        await add_account(store, "b")


async def test_transaction_takes_no_lock_when_it_is_used_after_its_block(opened: Opener) -> None:
    async with opened() as store:
        async with store.transaction() as wrote:
            await wrote.execute("account.add", id="a", balance=1)
        async with store.transaction() as idle:
            pass
        for tx in (wrote, idle):
            with pytest.raises(UnitMisuse, match="after its block"):
                await tx.execute("account.change", id="a", amount=1)
            with pytest.raises(UnitMisuse, match="after its block"):
                await tx.write("account.change", id="a", amount=1)
            with pytest.raises(UnitMisuse, match="after its block"):
                await tx.insert("account", id="b", balance=1)
            with pytest.raises(UnitMisuse, match="after its block"):
                await tx.publish("late", {})
            with pytest.raises(UnitMisuse, match="after its block"):
                await tx.fetch_one("account.get", id="a")
        assert await balance(store, "a") == 1


async def test_write_is_refused_when_the_commit_is_under_way(opened: Opener) -> None:
    async with opened() as store:
        async with store.transaction() as tx:
            await tx.execute("account.add", id="a", balance=1)

            async def write_late(tx: Tx = tx) -> None:
                await asyncio.sleep(0)
                await tx.write("account.change", id="a", amount=1)

            late = asyncio.ensure_future(write_late())
        with pytest.raises(UnitMisuse, match="after its block"):
            await late
        assert await balance(store, "a") == 1


async def test_transaction_leaves_nothing_when_it_is_cancelled(opened: Opener) -> None:
    async with opened() as store:

        async def body() -> None:
            async with store.transaction() as tx:
                await tx.execute("account.add", id="a", balance=1)
                await asyncio.sleep(60)

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await body()
        assert await balance(store, "a") is None
        await add_account(store, "b")


async def test_transaction_holds_no_lock_when_it_only_read(opened: Opener) -> None:
    async with opened() as one, opened() as two, one.transaction() as tx:
        assert await tx.fetch_all("account.all") == []
        async with asyncio.timeout(60):
            await add_account(two, "a")
        # Each statement sees the newest state until the first write.
        assert len(await tx.fetch_all("account.all")) == 1


async def test_first_write_is_refused_when_what_was_read_has_changed(opened: Opener) -> None:
    async with opened() as one, opened() as two:
        await add_account(one, "a", 1)
        with pytest.raises(TransactionStale, match=r"account\.get"):
            async with one.transaction() as tx:
                row = await tx.fetch_one("account.get", id="a")
                assert row is not None
                async with two.transaction() as faster:
                    await faster.execute("account.change", id="a", amount=1)
                await tx.execute("account.change", id="a", amount=-row["balance"])
        assert await balance(one, "a") == 2
        await add_account(one, "b")


async def test_first_write_succeeds_when_others_changed_something_else(opened: Opener) -> None:
    async with opened() as one, opened() as two:
        await add_account(one, "a", 1)
        async with one.transaction() as tx:
            await tx.fetch_one("account.get", id="a")
            await add_account(two, "b")
            await tx.execute("account.change", id="a", amount=1)
        assert await balance(one, "a") == 2


async def test_transaction_is_rolled_back_when_it_holds_the_lock_too_long(
    opened: Opener,
) -> None:
    async with opened(transaction_timeout_s=1.0) as one, opened() as two:
        with pytest.raises(TransactionTimeout, match="1 s"):
            async with one.transaction() as tx:
                await tx.execute("account.add", id="a", balance=1)
                async with asyncio.timeout(60.0):  # the lock comes back while it sleeps
                    await add_account(two, "a", 7)
                await tx.execute("account.change", id="a", amount=1)
        assert await balance(one, "a") == 7


async def test_transaction_fails_at_its_end_when_it_timed_out_unnoticed(opened: Opener) -> None:
    async with opened(transaction_timeout_s=0.05) as store:
        with pytest.raises(TransactionTimeout):
            async with store.transaction() as tx:
                await tx.execute("account.add", id="a", balance=1)
                await asyncio.sleep(0.1)
        assert await balance(store, "a") is None


async def test_block_is_told_when_the_store_was_closed_meanwhile(opened: Opener) -> None:
    async with opened() as store, opened() as other:
        await add_account(store, "a")
        with pytest.raises(StoreUnavailable, match="closed"):
            async with store.transaction() as tx:
                await tx.execute("account.change", id="a", amount=1)
                await store.close()
                with pytest.raises(StoreUnavailable, match="closed"):
                    await tx.execute("account.change", id="a", amount=1)
        with pytest.raises(LookupError):
            async with other.transaction() as tx:
                await tx.execute("account.change", id="a", amount=1)
                await other.close()
                raise LookupError


async def test_transaction_fails_when_a_swallowed_error_ended_it(opened: Opener) -> None:
    async with opened() as store:
        await add_account(store, "a")
        with pytest.raises(Conflict):
            async with store.transaction() as tx:
                await tx.execute("account.add", id="b", balance=1)
                try:
                    await tx.execute("account.add", id="a", balance=1)
                except Conflict:
                    pass
        assert await balance(store, "b") is None


def handling(store: Store, group: str = "g") -> EventContext:
    """What a handler of event e1 gets; the event came from a stream, so it has no row to delete."""
    return EventContext(store=store, vault=Vault(None), group=group, event_id="e1")


async def test_mark_commits_with_the_effect_when_a_handler_writes(opened: Opener) -> None:
    async with opened() as store:
        await add_account(store, "a")
        for _ in range(3):
            try:
                async with handling(store).transaction() as tx:
                    await tx.execute("account.change", id="a", amount=1)
            except AlreadySeen:
                pass
        async with handling(store, "other").transaction() as tx:
            await tx.execute("account.change", id="a", amount=10)
        assert await balance(store, "a") == 11


async def test_message_can_be_handled_again_when_its_transaction_failed(opened: Opener) -> None:
    async with opened() as store:
        with pytest.raises(LookupError):
            async with handling(store).transaction() as tx:
                await tx.execute("account.add", id="a", balance=1)
                raise LookupError
        async with handling(store).transaction() as tx:
            await tx.execute("account.add", id="a", balance=2)
        assert await balance(store, "a") == 2


async def test_mark_is_written_when_the_body_wrote_nothing(opened: Opener) -> None:
    async with opened() as store:
        async with handling(store).transaction():
            pass
        with pytest.raises(AlreadySeen):
            async with handling(store).transaction():
                pass


async def test_effect_happens_once_when_two_handle_one_message_at_once(opened: Opener) -> None:
    async with opened() as one, opened() as two:
        await add_account(one, "a")

        async def handle(number: int) -> None:
            async with handling(one if number % 2 else two).transaction() as tx:
                await asyncio.sleep(0.01)
                await tx.execute("account.change", id="a", amount=1)

        results = await asyncio.gather(*map(handle, range(6)), return_exceptions=True)
        assert sorted(type(r).__name__ for r in results) == ["AlreadySeen"] * 5 + ["NoneType"]
        assert await balance(one, "a") == 1


async def test_run_inside_is_refused_when_the_transaction_holds_the_lock(
    opened: Opener,
) -> None:
    async with opened() as store:
        async with store.transaction() as tx:
            await add_account(store, "before")  # holds nothing yet
            await tx.execute("account.add", id="a", balance=1)
            with pytest.raises(UnitMisuse, match="inside"):
                await add_account(store, "b")
        await add_account(store, "after")
        assert await balance(store, "a") == 1
        assert await balance(store, "b") is None


async def test_units_and_transactions_take_turns_when_they_mix(opened: Opener) -> None:
    patient = {"transaction_timeout_s": 60.0}  # each waits for its turn among 240
    async with opened(**patient) as one, opened(**patient) as two:
        await add_account(one, "a")

        async def solo(number: int) -> None:
            async with (one if number % 2 else two).transaction() as tx:
                await tx.execute("account.change", id="a", amount=1)
                await asyncio.sleep(0)
                await tx.execute("entry.add", account_id="a", amount=1, note=f"s{number}")

        async def shared(number: int) -> None:
            async def unit(tx: Tx) -> None:
                await tx.execute("account.change", id="a", amount=1)
                await tx.execute("entry.add", account_id="a", amount=1, note=f"u{number}")

            await (one if number % 2 else two).run(unit)

        await asyncio.gather(*map(solo, range(40)), *map(shared, range(200)))
        assert await balance(one, "a") == 240
        assert len(await notes(two)) == 240
