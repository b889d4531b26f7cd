"""A request that is sent again has its effect once and gets the same response."""

from __future__ import annotations

import asyncio
import random
from functools import partial

import pytest
from tests.contract.store.conftest import Opener

from cordata.errors import Conflict, KeyReused, PermanentError
from cordata.store import Store, Tx


async def ask(store: Store, key: str, *, body: str = "b", scope: str = "s") -> str:
    """One request: it adds an account, and answers with how many there are then."""

    async def unit(tx: Tx) -> str:
        async def answer() -> str:
            await tx.execute("account.add_once", id=f"{scope}-{key}-{body}", balance=1)
            return f"number {len(await tx.fetch_all('account.all'))}"

        return await tx.remembered(scope, key, answer, body_hash=body)

    return await store.run(unit)


async def test_second_request_gets_the_first_response_and_has_no_effect(opened: Opener) -> None:
    async with opened() as store:
        assert await ask(store, "k") == "number 1"
        assert await ask(store, "other") == "number 2"
        assert await ask(store, "k") == "number 1"
        assert await ask(store, "k", scope="t") == "number 3"


async def test_key_is_refused_when_it_comes_with_another_body(opened: Opener) -> None:
    async with opened() as store:
        await ask(store, "k")
        with pytest.raises(KeyReused, match="'k' was used with another body"):
            await ask(store, "k", body="c")
        assert await ask(store, "l") == "number 2"


async def test_nothing_is_remembered_when_there_was_no_answer(opened: Opener) -> None:
    async with opened() as store:

        async def unit(tx: Tx) -> str:
            async def answer() -> str:
                await tx.execute("account.add_once", id="x", balance=1)
                raise LookupError

            return await tx.remembered("s", "k", answer, body_hash="b")

        with pytest.raises(LookupError):
            await store.run(unit)
        assert await ask(store, "k") == "number 1"


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("at_once", [1, 20])
async def test_effect_happens_once_when_the_same_request_comes_twice_at_once(
    opened: Opener, processes: int, at_once: int
) -> None:
    """A double click: both get the answer of the one that was first, and neither an error."""
    rounds = 60 // at_once
    async with opened() as one, opened() as two:
        stores = (one, one) if processes == 1 else (one, two)
        for turn in range(rounds):
            keys = [f"k{turn}-{number}" for number in range(at_once)]
            answers = await asyncio.gather(*[ask(s, key) for key in keys for s in stores])
            assert answers[::2] == answers[1::2]
        assert await ask(one, "last") == f"number {rounds * at_once + 1}"


async def test_row_is_there_once_when_processes_look_for_it_and_add_it_at_once(
    opened: Opener,
) -> None:
    async def get_or_create(tx: Tx, name: str) -> int:
        row = await tx.fetch_one("account.get", id=name)
        if row is None:
            await tx.execute("account.add", id=name, balance=1)
            row = await tx.fetch_one("account.get", id=name)
        assert row is not None
        return int(row["balance"])

    async with opened() as one, opened() as two:
        for turn in range(40):
            unit = partial(get_or_create, name=f"a{turn}")
            assert await asyncio.gather(*[s.run(unit) for s in (one, two, one)]) == [1, 1, 1]


async def test_unit_conflicts_when_the_row_is_there_each_time_that_it_runs(opened: Opener) -> None:
    runs = 0

    async def add(tx: Tx) -> None:
        nonlocal runs
        runs += 1
        await tx.write("account.add", id="a", balance=1)

    async with opened() as store:
        await store.run(add)
        runs = 0
        with pytest.raises(Conflict):
            await store.run(add)
        assert 1 <= runs <= 2


@pytest.mark.parametrize(
    ("scope", "key", "said"),
    [("s", "k" * 1025, "key has 1,025 bytes"), ("s" * 1025, "k", "scope"), ("s", "\0", "NUL")],
)
async def test_key_is_refused_when_no_index_could_hold_it(
    opened: Opener, scope: str, key: str, said: str
) -> None:
    async with opened() as store:
        with pytest.raises(PermanentError, match=said):
            await ask(store, key, scope=scope)


async def test_key_is_taken_when_it_is_as_long_as_can_be(opened: Opener) -> None:
    letters = random.Random(1)
    longest = "".join(chr(letters.randrange(0x10000, 0x20000)) for _ in range(256))
    async with opened() as store:
        unit = partial(remember, scope=longest, key=longest[::-1])
        assert await store.run(unit) == await store.run(unit) == "once"


async def remember(tx: Tx, *, scope: str, key: str) -> str:
    async def answer() -> str:
        return "once"

    return await tx.remembered(scope, key, answer, body_hash="b")
