"""Units that share a transaction and get in each other's way, and what becomes of the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import psycopg
import pytest
from tests.contract.store.stores import add_account
from tests.integration.postgres.parts import Cutter, Wire, deposit, notes_there, opened
from tests.raw import raw
from tests.servers.postgres import PostgresServer
from tests.waiting import until_async

from cordata.clock import monotonic
from cordata.errors import Conflict, PermanentError, StoreUnavailable, Unclear
from cordata.store import Row, Store, Tx
from cordata.store.health import Busy
from cordata.store.postgres import store as postgres_store
from cordata.store.postgres.store import PostgresStore


async def find_or_add(store: Store, name: str) -> bool:
    """Whether the account is new."""

    async def unit(tx: Tx) -> bool:
        if await tx.fetch_one("account.get", id=name) is not None:
            return False
        await tx.write("account.add", id=name, balance=0)
        return True

    return await store.run(unit, batch=True)


async def add(store: Store, name: str) -> None:
    """A unit that does not look whether the account is there."""

    async def unit(tx: Tx) -> None:
        await tx.insert("account", id=name, balance=0)

    await store.run(unit, batch=True)


async def add_alone(store: Store, name: str) -> None:
    """A unit in a transaction of its own."""

    async def unit(tx: Tx) -> None:
        await tx.fetch_one("account.get_to_change", id=name)
        await tx.execute("account.add", id=name, balance=0)

    await store.run(unit)


async def many(call: Callable[[Store, str], Awaitable[object]], store: Store, names: str) -> list:  # type: ignore[type-arg]
    return await asyncio.gather(
        *(call(store, name) for name in names.split()), return_exceptions=True
    )


@pytest.mark.parametrize("batch", [False, True])
async def test_neighbours_do_not_wait_for_a_slow_statement(database: str, batch: bool) -> None:
    async with opened(database, write_timeout_s=5.0) as store:

        async def slow(tx: Tx) -> object:
            return await tx.fetch_one("forever")

        await deposit(store, "before")
        began = monotonic()
        slow_one = asyncio.ensure_future(store.run(slow, batch=batch))
        quick = await asyncio.gather(
            *(find_or_add(store, f"n{n}") for n in range(5)), return_exceptions=True
        )
        assert quick == [True] * 5
        assert not slow_one.done()
        with pytest.raises(Busy, match="took too long"):  # it had its time, alone
            await slow_one
        assert monotonic() - began > 5


async def test_units_that_add_one_row_find_it_in_turn_when_they_come_together(
    database: str,
) -> None:
    async with opened(database) as store:
        for n in range(20):
            found = await many(find_or_add, store, f"x{n} y{n} x{n} z{n} x{n} y{n} x{n} x{n}")
            assert sorted(map(str, found)) == ["False"] * 5 + ["True"] * 3


async def test_unit_is_told_of_the_conflict_when_the_row_was_there_before(database: str) -> None:
    async with opened(database) as store:
        await many(add, store, "x")
        before = store.stats().commits
        found = await many(add, store, "v x w y y z " + " ".join(f"n{n}" for n in range(60)))
        assert [isinstance(one, Conflict) for one in found[:6]].count(True) == 2
        assert isinstance(found[1], Conflict) and found[6:] == [None] * 60
        assert store.stats().commits - before < 8


async def test_callers_that_come_back_share_a_batch_with_those_that_waited(database: str) -> None:
    async with opened(database) as store:

        async def caller(name: int) -> None:
            for number in range(5):
                await add(store, f"{name}-{number}")

        before = store.stats().commits
        early = [asyncio.ensure_future(caller(name)) for name in range(4)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # their batch is under way
        await asyncio.gather(*early, *map(caller, range(4, 8)))
        # After the first batch each one has all callers; without a pause there would be ten.
        assert store.stats().commits - before <= 7


async def test_two_processes_that_add_the_same_rows_end_without_a_deadlock(
    postgres: PostgresServer, database: str
) -> None:
    names = [f"{n:03d}" for n in range(100)]
    async with opened(database) as one, opened(database) as other:
        for round_ in range(5):
            some = " ".join(f"{round_}-{name}" for name in names)
            same = " ".join(f"{round_}-{name}" for name in reversed(names))
            found = await asyncio.gather(
                many(find_or_add, one, some), many(find_or_add, other, same)
            )
            assert sum(sum(one) for one in found) == len(names)
    query = "SELECT deadlocks FROM pg_stat_database WHERE datname = %s"
    assert postgres.execute(query, [database.rpartition("/")[2]]) == [(0,)]


async def test_neighbours_go_on_when_a_value_breaks_the_batch(database: str) -> None:
    class Strange(str):
        def encode(self, encoding: str = "", errors: str = "") -> bytes:
            raise ZeroDivisionError

    async with opened(database) as store:
        found = await many(add, store, "a b c")
        assert found == [None] * 3
        told = await asyncio.gather(
            add(store, "d"), add(store, Strange("e")), add(store, "f"), return_exceptions=True
        )
        assert told[0] is told[2] is None
        assert isinstance(told[1], ZeroDivisionError)
        assert await find_or_add(store, "g")


async def test_neighbours_share_their_commit_when_one_unit_asks_in_vain(database: str) -> None:
    """A value that is no number, for example, which a client of the application has sent."""
    async with opened(database) as store:
        for n in range(60):
            await add_account(store, f"a{n}")
        commits = store.stats().commits

        async def good(tx: Tx, n: int) -> None:
            assert await tx.fetch_one("account.get", id=f"a{n}")
            await tx.write("account.change", id=f"a{n}", amount=1)

        async def bad(tx: Tx) -> None:
            await tx.fetch_one("sleep", seconds="no number")

        told = await asyncio.gather(
            store.run(bad, batch=True),
            *(store.run(partial(good, n=n), batch=True) for n in range(60)),
            return_exceptions=True,
        )
        assert isinstance(told[0], PermanentError) and told[1:] == [None] * 60
        assert store.stats().commits - commits < 5


async def test_units_share_their_commit_when_a_cancelled_read_was_never_prepared(
    postgres: PostgresServer, database: str
) -> None:
    """Nobody waits for the error any more, but the connection must not take it for prepared. It
    stays: on a server with too much to do, each new one would add to it.
    """

    async def session(tx: Tx) -> list[Row]:
        return await raw(tx, "SELECT pg_backend_pid()")

    locks = "SELECT count(*) FROM pg_locks WHERE NOT granted"
    async with opened(database, read_timeout_s=0.5) as store:
        for n in range(5):
            await add_account(store, f"a{n}")
        before = await store.read(session)
        with psycopg.connect(database) as other:
            other.execute("LOCK TABLE account IN ACCESS EXCLUSIVE MODE")
            read = asyncio.ensure_future(store.read(lambda tx: tx.fetch_one("account.get", id="a")))
            await until_async(lambda: postgres.execute(locks) == [(1,)])
            read.cancel()
            await until_async(lambda: store._pool._taken == 0)
        assert await store.read(session) == before
        commits = store.stats().commits

        async def unit(tx: Tx, n: int) -> None:
            assert await tx.fetch_one("account.get", id=f"a{n}")
            await tx.write("account.change", id=f"a{n}", amount=1)

        await asyncio.gather(*(store.run(partial(unit, n=n), batch=True) for n in range(5)))
        assert store.stats().commits - commits == 1


async def test_unit_with_very_many_statements_keeps_to_itself(database: str) -> None:
    async with opened(database) as store:

        async def big(tx: Tx) -> None:
            for n in range(300):
                await tx.insert("account", id=f"big{n}", balance=0)

        before = store.stats().commits
        await asyncio.gather(add(store, "a"), store.run(big, batch=True), add(store, "b"))
        assert store.stats().commits - before == 2


async def test_unit_that_nobody_waits_for_any_more_leaves_its_batch(database: str) -> None:
    async with opened(database) as store:
        await find_or_add(store, "before")
        reading = asyncio.Event()

        async def gone(tx: Tx) -> None:
            reading.set()
            await tx.fetch_one("account.get", id="gone")
            await tx.write("account.add", id="gone", balance=0)

        others = [asyncio.ensure_future(find_or_add(store, f"n{n}")) for n in range(4)]
        task = asyncio.ensure_future(store.run(gone, batch=True))
        await reading.wait()
        task.cancel()
        assert await asyncio.gather(*others) == [True] * 4
        assert await find_or_add(store, "gone")


@pytest.mark.parametrize("hold", [True, False])
async def test_unit_alone_is_undone_when_its_caller_goes_away_before_the_commit(
    database: str, hold: bool
) -> None:
    """A claim, say: nobody would ever give it back."""
    async with opened(database) as store:
        await deposit(store, "before")
        reading = asyncio.Event()

        async def claim(tx: Tx) -> None:
            reading.set()
            await tx.fetch_one("account.get_to_change" if hold else "account.get", id="a")
            await tx.execute("account.change", id="a", amount=7)

        for others in range(3):
            reading.clear()
            tasks = [asyncio.ensure_future(store.run(claim)) for _ in range(others + 1)]
            await reading.wait()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await until_async(lambda: not store.waiting)
        assert await notes_and_balance(store) == 1


async def notes_and_balance(store: Store) -> int:
    async def unit(tx: Tx) -> int:
        row = await tx.fetch_one("account.get", id="a")
        assert row is not None
        return int(row["balance"]) + len(await tx.fetch_all("entry.notes"))

    return await store.read(unit)


async def run_one(store: Store) -> list[object]:
    return await many(add, store, "x")


async def run_some(store: Store) -> list[object]:
    return await many(add, store, "x y z")


async def run_alone(store: Store) -> list[object]:
    return await many(add_alone, store, "x")


Run = Callable[[Store], Awaitable[list[object]]]
RUNS = pytest.mark.parametrize("run", [run_one, run_some, run_alone])


async def close_soon(store: PostgresStore) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(postgres_store, "_CLOSE_WAIT_S", 0.3)
        await store.close()


async def closed_while_it_runs(
    wire: Wire,
    database: str,
    run: Run,
    look: Callable[[bytes], bool | None],
    when: Callable[[], bool],
) -> list[object]:
    """What callers are told by a store that is closed `when` the wire has come so far."""
    async with opened(wire.url(database), prepared_statements=False) as store:
        await deposit(store, "before")
        await many(add_alone, store, "p q")
        wire.look = look
        running = asyncio.ensure_future(run(store))
        await until_async(when)
        await close_soon(store)
        async with asyncio.timeout(60):
            return await running


@RUNS
async def test_caller_is_told_that_nobody_knows_when_the_store_is_closed_in_a_commit(
    postgres: PostgresServer, database: str, run: Run
) -> None:
    async with Wire(postgres.port) as wire:
        commits = list[bytes]()

        def look(data: bytes) -> bool | None:
            if b"COMMIT\0" in data:
                wire.cut()
                commits.append(data)
            return None

        told = await closed_while_it_runs(wire, database, run, look, lambda: bool(commits))
        assert {type(error) for error in told} == {Unclear}
        wire.mend()


@RUNS
async def test_caller_is_answered_when_the_store_is_closed_while_it_asks_for_an_outcome(
    postgres: PostgresServer, database: str, run: Run
) -> None:
    async with Wire(postgres.port) as wire:
        cutter, asked = Cutter(answered=True, armed=False), list[bytes]()

        def look(data: bytes) -> bool | None:
            said = cutter(data)
            if said is not None or not cutter.cuts:
                return said
            asked.append(data)
            return False

        cutter.armed = True
        told = await closed_while_it_runs(wire, database, run, look, lambda: bool(asked))
        assert all(isinstance(error, StoreUnavailable) for error in told)
        assert "not known" in str(told[0])


async def test_nothing_is_left_waiting_when_the_store_is_closed_under_load(
    postgres: PostgresServer, database: str
) -> None:
    async with Wire(postgres.port) as wire:
        async with opened(wire.url(database)) as store:
            await deposit(store, "first")
            wire.cut()
            running = [asyncio.ensure_future(deposit(store, f"n{n}")) for n in range(400)]
            await asyncio.sleep(0.1)
            await close_soon(store)
            async with asyncio.timeout(60):
                told = await asyncio.gather(*running, return_exceptions=True)
            assert all(isinstance(error, StoreUnavailable) for error in told)
            wire.mend()
    assert notes_there(postgres, database) == ["first"]


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("count", [1, 3])
async def test_unit_sees_one_state_when_another_process_moves_what_it_reads(
    postgres: PostgresServer, database: str, count: int, batch: bool
) -> None:
    name = database.rpartition("/")[2]
    move = "UPDATE account SET balance = balance + CASE id WHEN 'a' THEN -1 ELSE 1 END"

    async def see(tx: Tx) -> int:
        first = await tx.fetch_one("account.get", id="a")
        postgres.execute(move, database=name)  # commits while this unit is about to go on
        second = await tx.fetch_one("account.get", id="b")
        assert first is not None and second is not None
        return int(first["balance"]) + int(second["balance"])

    async with opened(database) as store:
        for account in ("a", "b"):
            await add_account(store, account, 100)
        assert (
            await asyncio.gather(*[store.run(see, batch=batch) for _ in range(count)])
            == [200] * count
        )
