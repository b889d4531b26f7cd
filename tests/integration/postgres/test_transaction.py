"""Transactions side by side, which on PostgreSQL really run at once."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import psycopg
import pytest
from tests.contract.store.stores import add_account, balance
from tests.integration.postgres.parts import RoundTrips, Wire, opened
from tests.raw import raw
from tests.servers.postgres import PostgresServer
from tests.waiting import until_async

from cordata.errors import (
    Conflict,
    PermanentError,
    StoreUnavailable,
    TransactionStale,
    TransactionTimeout,
    TransientError,
)
from cordata.store import Row, Store, Tx
from cordata.store.health import Busy


async def change(store: Store, name: str, amount: int = 1) -> None:
    async def unit(tx: Tx) -> None:
        await tx.execute("account.change", id=name, amount=amount)

    await store.run(unit)


def waits_for_a_lock(postgres: PostgresServer) -> bool:
    """Whether a session waits for a lock."""
    return postgres.execute("SELECT count(*) FROM pg_locks WHERE NOT granted") != [(0,)]


async def test_no_change_is_lost_when_a_row_changes_after_the_first_write(database: str) -> None:
    """It was read, unchanged at the first write, and is changed by another before we change it."""
    async with opened(database) as one, opened(database) as two:
        await add_account(one, "a", 10)
        await add_account(one, "b", 0)
        with pytest.raises(TransactionStale, match=r"account\.get"):
            async with one.transaction() as tx:
                row = await tx.fetch_one("account.get", id="a")
                assert row is not None
                await tx.execute("account.change", id="b", amount=1)
                await change(two, "a", 5)
                await tx.execute("account.change", id="a", amount=-row["balance"])
        assert await balance(one, "a") == 15 and await balance(one, "b") == 0


async def test_transaction_goes_on_when_a_counter_that_all_change_was_changed(
    database: str,
) -> None:
    """Everything is done once more; what it had seen is the same, so nobody need know."""
    async with opened(database) as one, opened(database) as two:
        for name in ("a", "own", "counter"):
            await add_account(one, name, 10)
        async with one.transaction() as tx:
            row = await tx.fetch_one("account.get", id="a")
            assert row is not None
            await tx.execute("account.change", id="own", amount=1)
            await tx.write("account.change", id="own", amount=1)
            await change(two, "counter")
            await change(two, "counter")
            await tx.execute("account.change", id="counter", amount=1)
            await tx.write("entry.add", account_id="a", amount=1, note="once")
        assert await balance(one, "own") == 12 and await balance(one, "counter") == 13
        found = await one.read(lambda tx: tx.fetch_one("entry.count"))
        assert found is not None and found["count"] == 1


async def test_unit_that_waited_for_a_lock_sees_what_its_holder_wrote(
    postgres: PostgresServer, database: str
) -> None:
    """Though the holder did not change the row that both lock: to keep others away is enough."""

    async def see(tx: Tx) -> Row | None:
        await tx.fetch_one("account.all")
        await tx.fetch_one("account.get_to_change", id="gate")
        return await tx.fetch_one("account.get", id="new")

    async with opened(database) as store, opened(database) as other:
        await add_account(store, "gate")
        async with store.transaction() as tx:
            await tx.execute("account.add", id="new", balance=0)
            await tx.fetch_one("account.get_to_change", id="gate")
            seen = asyncio.ensure_future(other.run(see))
            await until_async(lambda: waits_for_a_lock(postgres))
        assert await seen is not None


async def test_no_change_is_lost_when_a_row_is_read_behind_the_first_write(database: str) -> None:
    async def take(name: str, read: asyncio.Event, go: asyncio.Event) -> None:
        async with store.transaction() as tx:
            await tx.execute("account.add", id=name, balance=0)
            row = await tx.fetch_one("account.get", id="stock")
            assert row is not None
            read.set()
            await go.wait()
            await tx.execute("account.set", id="stock", balance=row["balance"] - 1)

    async with opened(database) as store:
        await add_account(store, "stock", 10)
        read, go, at_once = asyncio.Event(), asyncio.Event(), asyncio.Event()
        at_once.set()
        slow = asyncio.ensure_future(take("slow", read, go))
        await read.wait()
        await take("quick", asyncio.Event(), at_once)
        go.set()
        (ended,) = await asyncio.gather(slow, return_exceptions=True)
        left = await balance(store, "stock")
        assert left == 8 or (left == 9 and isinstance(ended, TransactionStale))


async def test_both_succeed_when_two_transactions_lock_crosswise(database: str) -> None:
    async with opened(database) as store:
        await add_account(store, "a")
        await add_account(store, "b")
        meet = asyncio.Barrier(2)

        async def cross(first: str, second: str) -> None:
            async with store.transaction() as tx:
                await tx.execute("account.change", id=first, amount=1)
                await meet.wait()
                await tx.execute("account.change", id=second, amount=1)

        for _ in range(3):
            await asyncio.gather(cross("a", "b"), cross("b", "a"))
        assert await balance(store, "a") == await balance(store, "b") == 6


async def test_units_succeed_when_they_lock_crosswise(database: str) -> None:
    # The server takes its time to find a deadlock, and there are many.
    patient: dict[str, Any] = {"write_timeout_s": 120.0}
    async with opened(database, **patient) as one, opened(database, **patient) as two:
        await add_account(one, "a")
        await add_account(one, "b")

        async def cross(store: Store, first: str, second: str) -> None:
            async def unit(tx: Tx) -> None:
                await tx.execute("account.change", id=first, amount=1)
                await tx.execute("account.change", id=second, amount=1)

            await store.run(unit)

        await asyncio.gather(
            *(cross(store, *("ab" if n % 2 else "ba")) for n in range(60) for store in (one, two))
        )
        assert await balance(one, "a") == await balance(one, "b") == 120


async def test_locks_are_free_at_once_when_a_transaction_is_cancelled(database: str) -> None:
    async with opened(database) as one, opened(database) as two:
        await add_account(one, "a")
        for pause in (0.0, 0.002, 0.01):
            locked = asyncio.Event()

            async def hold(locked: asyncio.Event = locked) -> None:
                async with one.transaction() as tx:
                    await tx.execute("account.change", id="a", amount=1)
                    locked.set()
                    while True:
                        await tx.fetch_one("account.get", id="a")

            task = asyncio.ensure_future(hold())
            await locked.wait()
            await asyncio.sleep(pause)
            task.cancel()
            await asyncio.wait([task])
            await change(two, "a")
        assert await balance(one, "a") == 3
        assert one.stats().state == "ok"


async def test_locks_are_free_when_the_time_of_a_block_is_up_and_its_statement_waits(
    database: str,
) -> None:
    """The server has nothing to tell the client meanwhile, so it must look whether it is there."""
    settings: dict[str, Any] = {"write_timeout_s": 3600.0}
    async with (
        opened(database, transaction_timeout_s=0.5, **settings) as one,
        opened(database, transaction_timeout_s=3600.0, **settings) as two,
    ):
        await add_account(one, "a")
        await add_account(one, "b")
        async with two.transaction() as holder:
            await holder.execute("account.change", id="b", amount=1)
            with pytest.raises(TransactionTimeout):
                async with one.transaction() as tx:
                    await tx.execute("account.change", id="a", amount=1)
                    await tx.execute("account.change", id="b", amount=1)
            async with asyncio.timeout(60):
                await change(one, "a", 5)
        assert await balance(one, "a") == 5


def make_updates_slow(server: psycopg.Connection) -> None:
    """An UPDATE of an account takes 1.1 s from now on."""
    server.execute(
        "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql"
        " AS 'BEGIN PERFORM pg_sleep(1.1); RETURN new; END'"
    )
    server.execute(
        "CREATE TRIGGER wait BEFORE UPDATE ON account FOR EACH ROW EXECUTE FUNCTION wait()"
    )
    server.commit()


async def test_writes_that_are_sent_together_have_their_whole_time_each(database: str) -> None:
    """The server limits each statement; all of them together may take longer."""
    with psycopg.connect(database) as server:
        async with opened(database, write_timeout_s=2.0, transaction_timeout_s=3600.0) as store:
            await add_account(store, "a")
            make_updates_slow(server)
            async with store.transaction() as tx:
                for _ in range(3):
                    await tx.write("account.change", id="a", amount=1)
                assert await tx.fetch_one("account.get", id="a") == {"id": "a", "balance": 3}
                for _ in range(3):  # sent with the COMMIT
                    await tx.write("account.change", id="a", amount=1)
            assert await balance(store, "a") == 6 and store.stats().state == "ok"


async def test_store_stays_ok_when_the_statements_of_a_unit_take_too_long_together(
    database: str,
) -> None:
    """A server that works through them is not silent."""

    async def change_often(tx: Tx) -> None:
        for _ in range(4):
            await tx.write("account.change", id="a", amount=1)

    with psycopg.connect(database) as server:
        async with opened(database, write_timeout_s=2.0) as store:
            await add_account(store, "a")
            make_updates_slow(server)
            with pytest.raises(Busy, match="no answer within 2 s"):
                await store.run(change_often)
            assert store.stats().state == "ok" and await balance(store, "a") == 0


async def test_connection_is_used_again_when_a_block_raised(
    postgres: PostgresServer, database: str
) -> None:
    pids = (
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
        " AND pid <> pg_backend_pid() ORDER BY pid"
    )
    async with opened(database) as store:
        await add_account(store, "a")
        name = database.rpartition("/")[2]
        before = postgres.execute(pids, database=name)
        with pytest.raises(LookupError):
            async with store.transaction() as tx:
                await tx.execute("account.change", id="a", amount=1)
                raise LookupError
        await change(store, "a")
        assert postgres.execute(pids, database=name) == before


async def test_block_raises_its_own_error_when_the_store_was_closed_meanwhile(
    database: str,
) -> None:
    async with opened(database) as store:
        await add_account(store, "a")
        with pytest.raises(LookupError):
            async with store.transaction() as tx:
                await tx.execute("account.change", id="a", amount=1)
                await store.close()
                raise LookupError


async def change_b_and_begin_a(tx: Tx) -> asyncio.Future[int]:
    """The change of a, by a task of its own, has begun at the return; that of b is done."""
    await tx.execute("account.change", id="b", amount=1)
    change_a = asyncio.ensure_future(tx.execute("account.change", id="a", amount=1))
    await asyncio.sleep(0)
    return change_a


async def test_statement_of_another_task_is_not_cancelled_when_the_block_is(
    postgres: PostgresServer, database: str
) -> None:
    statements: list[asyncio.Future[int]] = []

    async def block() -> None:
        async with one.transaction() as tx:
            statements.append(await change_b_and_begin_a(tx))

    async with opened(database) as one, opened(database) as two:
        await add_account(one, "a")
        await add_account(one, "b")
        async with two.transaction() as holder:
            await holder.execute("account.change", id="a", amount=1)
            task = asyncio.ensure_future(block())
            await until_async(lambda: waits_for_a_lock(postgres))
            task.cancel()
            await asyncio.wait([task])
        assert await statements[0] == 1


async def test_nothing_is_committed_when_it_is_cancelled_before_its_last_write_is_sent(
    postgres: PostgresServer, database: str
) -> None:
    statements: list[asyncio.Future[int]] = []

    async def block() -> None:
        async with one.transaction() as tx:
            statements.append(await change_b_and_begin_a(tx))
            await tx.write("account.change", id="b", amount=1)  # waits for the end of that

    async with opened(database) as one, opened(database) as two:
        await add_account(one, "a")
        await add_account(one, "b")
        async with two.transaction() as holder:
            await holder.execute("account.change", id="a", amount=1)
            task = asyncio.ensure_future(block())
            await until_async(lambda: waits_for_a_lock(postgres))
            task.cancel()
            await asyncio.sleep(0)
        await asyncio.gather(task, *statements, return_exceptions=True)
        assert await balance(one, "b") == 0
        with pytest.raises(TransientError, match="block"):
            await statements[0]


async def test_commit_is_refused_when_the_store_was_closed_meanwhile(database: str) -> None:
    async with opened(database) as store, opened(database) as other:
        await add_account(store, "a")
        with pytest.raises(StoreUnavailable, match="closed"):
            async with store.transaction() as tx:
                await tx.execute("account.change", id="a", amount=1)
                await store.close()
        assert await balance(other, "a") == 0


async def test_reads_that_nobody_waits_for_leave_the_pool_whole(database: str) -> None:
    async with opened(database, pool_size=2, read_timeout_s=1.0) as store:
        tasks = [
            asyncio.ensure_future(store.read(lambda tx: tx.fetch_all("forever"))) for _ in range(2)
        ]
        await asyncio.sleep(0.1)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        async with asyncio.timeout(60):
            await add_account(store, "a")
        assert await balance(store, "a") == 0


async def test_no_session_is_left_when_a_read_is_cancelled_and_the_store_closed_at_once(
    postgres: PostgresServer, database: str
) -> None:
    sessions = "SELECT wait_event FROM pg_stat_activity WHERE datname = %s"
    name = database.rpartition("/")[2]
    async with opened(database) as store:
        read = asyncio.ensure_future(store.read(lambda tx: tx.fetch_all("forever")))
        await until_async(lambda: ("PgSleep",) in postgres.execute(sessions, [name]))
        read.cancel()
        await store._tasks.close()  # before the task that closes the connection has begun
        await asyncio.wait([read])
    gc.collect()  # a connection that nobody closed says so now
    postgres.terminate_backends(database=name)


async def test_nothing_is_committed_when_a_statement_was_cancelled(database: str) -> None:
    async with opened(database) as one, opened(database) as two:
        await add_account(one, "a")
        await add_account(one, "b")
        async with two.transaction() as holder:
            await holder.execute("account.change", id="a", amount=1)
            with pytest.raises(TransientError, match="cancelled"):
                async with one.transaction() as tx:
                    await tx.execute("account.change", id="b", amount=1)
                    with pytest.raises(TimeoutError):
                        async with asyncio.timeout(0.1):
                            await tx.execute("account.change", id="a", amount=1)
                    with pytest.raises(TransientError, match="cancelled"):
                        await tx.fetch_one("account.get", id="b")
        assert await balance(one, "a") == 1 and await balance(one, "b") == 0


async def test_nothing_is_committed_when_it_is_cancelled_before_the_commit(database: str) -> None:
    async with opened(database) as one, opened(database) as two:
        await add_account(one, "a")
        await add_account(one, "b")

        async def change_both() -> None:
            async with one.transaction() as tx:
                await tx.execute("account.change", id="b", amount=1)
                await tx.write("account.change", id="a", amount=1)

        async with two.transaction() as holder:
            await holder.execute("account.change", id="a", amount=1)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await change_both()
        assert await balance(one, "a") == 1 and await balance(one, "b") == 0
        assert one.stats().state == "ok"


async def test_conflict_is_reported_when_a_key_is_checked_at_the_commit(
    postgres: PostgresServer, database: str
) -> None:
    key = "ALTER TABLE account ADD UNIQUE (balance) DEFERRABLE INITIALLY DEFERRED"
    async with opened(database) as store:
        await add_account(store, "a", 1)
        postgres.execute(key, database=database.rpartition("/")[2])
        with pytest.raises(Conflict) as conflict:
            async with store.transaction() as tx:
                await tx.execute("account.add", id="b", balance=1)
        assert conflict.value.constraint == "account_balance_key"
        assert await balance(store, "b") is None


@pytest.mark.parametrize("first", ["write", "lock"])
async def test_reads_are_repeated_in_one_round_trip_when_the_first_write_comes(
    postgres: PostgresServer, database: str, first: str
) -> None:
    async with Wire(postgres.port) as wire, opened(wire.url(database)) as store:
        for name in "abcd":
            await add_account(store, name)
        wire.look = trips = RoundTrips()
        async with store.transaction() as tx:
            for name in "abc":
                await tx.fetch_one("account.get", id=name)
            trips.count = 0
            if first == "write":
                await tx.execute("account.change", id="d", amount=1)
            else:
                await tx.fetch_one("account.get_to_change", id="d")
            assert trips.count == 2


async def test_first_lock_is_refused_when_a_row_changed_while_it_waited(
    postgres: PostgresServer, database: str
) -> None:
    async with opened(database) as one, opened(database) as two:
        await add_account(one, "a")
        await add_account(one, "b")
        with pytest.raises(TransactionStale, match=r"account\.get"):
            async with one.transaction() as tx:
                await tx.fetch_one("account.get", id="a")
                await tx.fetch_one("account.get", id="b")
                async with two.transaction() as holder:
                    await holder.execute("account.change", id="b", amount=1)
                    await holder.fetch_one("account.get_to_change", id="a")
                    lock = asyncio.ensure_future(tx.fetch_one("account.get_to_change", id="a"))
                    await until_async(lambda: waits_for_a_lock(postgres))
                await lock


async def test_error_says_to_lock_first_when_a_late_lock_finds_what_was_read_changed(
    database: str,
) -> None:
    async with opened(database) as one, opened(database) as two:
        for name in "abc":
            await add_account(one, name)
        with pytest.raises(TransactionStale) as stale:
            async with one.transaction() as tx:
                await tx.execute("account.change", id="a", amount=1)
                await tx.fetch_one("account.get", id="b")
                await change(two, "b")
                await tx.fetch_one("account.get_to_change", id="c")
        assert stale.value.hint == "lock before the first write"


async def test_error_names_no_value_when_the_server_quotes_one(database: str) -> None:
    async with opened(database) as store:
        await add_account(store, "a")

        async def twice(tx: Tx) -> None:
            await tx.execute("entry.add", account_id="a", amount=1, note="secret")

        await store.run(twice)
        with pytest.raises(Conflict) as conflict:
            await store.run(twice)
        assert conflict.value.constraint == "entry_note_key"
        assert "secret" not in str(conflict.value)

        async def no_number(tx: Tx) -> None:
            await tx.execute("entry.add", account_id="a", amount="secret", note="x")

        with pytest.raises(PermanentError, match="22P02") as wrong:
            await store.run(no_number)
        assert "secret" not in str(wrong.value)


@pytest.mark.parametrize("note", ["\0", "a\0b", "\ud800", object(), 2**70])
async def test_value_is_refused_when_no_column_can_hold_it(database: str, note: object) -> None:
    async with opened(database) as store:
        await add_account(store, "a")

        async def unit(tx: Tx) -> None:
            await tx.execute("account.change", id="a", amount=1)
            key = "amount" if isinstance(note, int) else "note"
            values = {"account_id": "a", "amount": 1, "note": "n", key: note}
            await tx.execute("entry.add", **values)

        with pytest.raises(PermanentError):
            await store.run(unit)
        with pytest.raises(PermanentError):
            async with store.transaction() as tx:
                await unit(tx)
        assert await balance(store, "a") == 0
        assert store.stats().state == "ok"


async def test_values_come_back_as_they_went_in(database: str) -> None:
    async with opened(database) as store:

        async def unit(tx: Tx) -> list[Row]:
            return await raw(
                tx,
                "SELECT ?::text AS t, ?::bigint AS i, ?::bytea AS b, ?::float8 AS f,"
                " ?::text AS n, ?::integer AS yes, ?::boolean AS really, ?::numeric AS d",
                ["Über '\"\\ 🎿", -(2**63), bytes(range(256)), 0.1, None, True, True, 5],
            )

        (row,) = await store.run(unit)
        assert dict(row) == {
            "t": "Über '\"\\ 🎿",
            "i": -(2**63),
            "b": bytes(range(256)),
            "f": 0.1,
            "n": None,
            "yes": 1,
            "really": True,
            "d": 5,
        }
