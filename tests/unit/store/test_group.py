"""In which order units stand in a batch, and which of them add the same row."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from cordata.store import Tx
from cordata.store.postgres.book import Book
from cordata.store.postgres.entry import Entry
from cordata.store.postgres.group import rivals, shares_of, standing
from cordata.store.postgres.share import Share
from cordata.store.queries import Queries, Query

SQL = {
    "find": "SELECT v FROM a WHERE k = :k",
    "add": "INSERT INTO a (id, k, v) VALUES (:id, :k, :v)",
    "note": "INSERT INTO b (k) VALUES (:k)",
}
BY_NAME = {name: Query(name, sql, "here", "postgres") for name, sql in SQL.items()}


def begun(keys: Sequence[str | None], *, asks: bool = True) -> list[Entry]:
    """Units that look for a key and then add it, or add it at once."""
    queries = Queries(BY_NAME.values())
    found = []
    for number, key in enumerate(keys):

        async def unit(tx: Tx, key: str | None = key, number: int = number) -> None:
            if asks:
                await tx.fetch_one("find", k=key)
            await tx.write("add", id=-number, k=key, v=0)
            await tx.write("note", k=key)

        entry = Entry(unit, None, asyncio.get_running_loop().create_future(), 0.0)
        entry.begin(queries, 0)
        entry.step(None)
        found.append(entry)
    return found


def order_of(entries: Sequence[Entry]) -> list[object]:
    got = sorted(entries, key=standing)
    return [shares_of(0, entry)[0].args[-1 if entry.ask else 1] for entry in got]


async def test_units_stand_in_one_order_however_they_came() -> None:
    assert order_of(begun(["c", "a", None, "b"])) == [None, "a", "b", "c"]
    assert order_of(begun([None, "b", "c", "a"])) == [None, "a", "b", "c"]


async def test_units_stand_as_they_came_when_they_only_add() -> None:
    assert order_of(begun(["c", "a", None, "b"], asks=False)) == ["c", "a", None, "b"]


async def test_place_is_that_of_the_first_statement_when_others_follow() -> None:
    one, other = begun(["b", "a"])
    assert sorted([one, other], key=standing) == [other, one]
    one.step([])
    other.step([])
    assert sorted([one, other], key=standing) == [other, one]


async def test_those_that_wrote_stand_before_the_others_in_their_order() -> None:
    first, second, third = begun(["c", "b", "a"])
    first.rank, second.rank = 1, 0
    assert sorted([first, second, third], key=standing) == [second, first, third]


def shares(*rows: tuple[int, object, object]) -> list[list[Share]]:
    return [[Share(u, BY_NAME["add"], row, "")] for u, row in enumerate(rows)]


def book(*keys: tuple[int, ...]) -> Book:
    made = Book(prepared=True)
    made.unique[BY_NAME["add"]] = keys
    return made


def test_all_but_the_first_that_add_a_row_are_rivals() -> None:
    units = shares((1, "a", 0), (2, "b", 0), (3, "a", 0), (4, "a", 0))
    assert rivals(units, book((0,), (1,)), 0) == [2, 3]
    assert rivals(units, book((0,), (1,)), 3) == [3]
    assert rivals(units, book((0,)), 0) == []
    assert rivals(units, book((0, 1)), 0) == []
    assert rivals(units, book(), 0) == []


def test_nobody_is_a_rival_for_what_is_null_or_cannot_be_compared() -> None:
    assert rivals(shares((1, None, 0), (2, None, 0)), book((1,)), 0) == []
    assert rivals(shares((1, bytearray(b"x"), 0), (2, bytearray(b"x"), 0)), book((1,)), 0) == []
