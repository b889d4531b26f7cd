"""Statements that call functions of the database: one that reads by its text may write."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from urllib.parse import urlsplit

import pytest
from tests.integration.postgres.parts import Cutter, Wire, notes_there, opened
from tests.servers.postgres import PostgresServer

from cordata.errors import Conflict
from cordata.store import Store, Tx, UnitMisuse

#: `count_of` only reads, `take_note` adds an entry.
FUNCTIONS = (
    "CREATE FUNCTION count_of(whose text) RETURNS bigint LANGUAGE sql"
    " AS $$ SELECT count(*) FROM entry WHERE account_id = whose $$",
    "CREATE FUNCTION take_note(text) RETURNS bigint LANGUAGE sql"
    " AS $$ INSERT INTO account VALUES ('f', 0) ON CONFLICT DO NOTHING;"
    " INSERT INTO entry (account_id, amount, note) VALUES ('f', 1, $1) RETURNING id $$",
)


async def take_note(tx: Tx, note: str) -> None:
    """A unit that does nothing but call a function that writes."""
    await tx.fetch_one("entry.take_note", note=note)


@pytest.fixture
def define(postgres: PostgresServer, database: str) -> Iterator[None]:
    """The functions, once the store that `opened` migrates has its tables."""

    async def migrate() -> None:
        async with opened(database):
            pass

    asyncio.run(migrate())
    name = urlsplit(database).path.removeprefix("/")
    for function in FUNCTIONS:
        postgres.execute(function, database=name)
    yield


@pytest.mark.usefixtures("define")
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("answered", [True, False])
async def test_note_is_there_once_when_the_wire_is_cut_during_the_commit_of_a_function(
    postgres: PostgresServer, database: str, answered: bool, count: int
) -> None:
    async with Wire(postgres.port) as wire:
        async with opened(wire.url(database), prepared_statements=False) as store:
            for turn in range(5):
                wire.look = cutter = Cutter(answered=answered)
                notes = [f"n{turn}{number}" for number in range(count)]
                await asyncio.gather(*[store.run(partial(take_note, note=n)) for n in notes])
                assert cutter.cuts == 1
                assert sorted(n for n in notes_there(postgres, database) if n in notes) == notes
    assert len(notes_there(postgres, database)) == 5 * count


@pytest.mark.usefixtures("define")
async def test_note_is_there_when_a_neighbour_of_the_function_conflicts(
    postgres: PostgresServer, database: str
) -> None:
    async def add_twice(tx: Tx, name: str) -> None:
        await tx.write("account.add", id=name, balance=0)

    async with opened(database) as store:
        await store.run(partial(add_twice, name="x"))
        results = await asyncio.gather(
            *[store.run(partial(take_note, note=f"n{number}")) for number in range(4)],
            store.run(partial(add_twice, name="x")),
            return_exceptions=True,
        )
        assert [type(one) for one in results] == [type(None)] * 4 + [Conflict]
    assert sorted(notes_there(postgres, database)) == ["n0", "n1", "n2", "n3"]


@pytest.mark.usefixtures("define")
async def test_note_is_taken_back_when_the_unit_raises_after_the_function(
    postgres: PostgresServer, database: str
) -> None:
    async def take_and_raise(tx: Tx) -> None:
        await take_note(tx, "taken back")
        raise LookupError

    async def add(tx: Tx, name: str) -> None:
        await tx.execute("account.add", id=name, balance=0)

    async with opened(database) as store:
        results = await asyncio.gather(
            store.run(partial(add, name="x")),
            store.run(take_and_raise),
            store.run(partial(add, name="y")),
            return_exceptions=True,
        )
        assert [type(one) for one in results] == [type(None), LookupError, type(None)]
    assert notes_there(postgres, database) == []


@pytest.mark.usefixtures("define")
async def test_transaction_takes_the_note_once_when_the_function_is_its_first_statement(
    postgres: PostgresServer, database: str
) -> None:
    async with opened(database) as store:
        async with store.transaction() as tx:
            await take_note(tx, "once")
            await tx.execute("account.add", id="x", balance=0)
        with pytest.raises(LookupError):
            async with store.transaction() as tx:
                await take_note(tx, "never")
                raise LookupError
    assert notes_there(postgres, database) == ["once"]


@pytest.mark.usefixtures("define")
async def test_read_is_refused_when_its_function_writes_and_answered_when_it_reads(
    postgres: PostgresServer, database: str
) -> None:
    async def count(store: Store) -> int:
        row = await store.read(lambda tx: tx.fetch_one("entry.count_of", account_id="f"))
        assert row is not None
        return int(row["count"])

    async with opened(database) as store:
        await store.run(partial(take_note, note="n"))
        assert await count(store) == 1
        for _ in range(2):
            with pytest.raises(UnitMisuse, match=r"'entry\.take_note' writes"):
                await store.read(partial(take_note, note="m"))
        assert store.stats().state == "ok" and await count(store) == 1
    assert notes_there(postgres, database) == ["n"]
