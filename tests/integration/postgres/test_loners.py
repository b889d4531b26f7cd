"""Units that run alone, and for whom they wait."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from tests.integration.postgres.parts import Cutter, Wire, notes_there, opened
from tests.servers.postgres import PostgresServer

from cordata.errors import Conflict
from cordata.store import Store, Tx


async def test_unit_that_runs_alone_does_not_wait_for_all_of_another_kind(database: str) -> None:
    async with opened(database, pool_size=2) as store:  # one at once
        began = list[str]()

        async def frequent(tx: Tx) -> None:
            began.append("frequent")
            await tx.fetch_one("account.get_to_change", id="a")

        async def rare(tx: Tx) -> None:
            began.append("rare")
            await tx.fetch_one("account.get_to_change", id="b")

        for _ in range(2):  # both kinds are known to run alone then
            await asyncio.gather(*[store.run(unit) for unit in (frequent, rare) * 2])
        began.clear()
        await asyncio.gather(*[store.run(frequent) for _ in range(12)], store.run(rare))
        assert began.index("rare") <= 2 and len(began) == 13


async def note(tx: Tx, text: str, account: str = "a") -> None:
    """Locks, so that it runs alone; what it writes last goes with its COMMIT."""
    await tx.execute("account.add_once", id="a", balance=0)
    await tx.fetch_one("account.get_to_change", id="a")
    await tx.write("entry.add", account_id=account, amount=1, note=text)


async def teach(store: Store) -> None:
    """Two at once: the kind is known to run alone then."""
    await asyncio.gather(*[store.run(partial(note, text=f"taught {n}")) for n in range(2)])


@pytest.mark.parametrize("answered", [True, False])
async def test_unit_that_runs_alone_is_committed_once_when_its_last_words_are_cut_off(
    postgres: PostgresServer, database: str, answered: bool
) -> None:
    async with Wire(postgres.port) as wire:
        async with opened(wire.url(database), prepared_statements=False) as store:
            await teach(store)
            for number in range(5):
                wire.look = cutter = Cutter(b"INSERT INTO entry", answered=answered)
                await store.run(partial(note, text=f"n{number}"))
                assert cutter.cuts == 1
        found = [text for text in notes_there(postgres, database) if text.startswith("n")]
        assert sorted(found) == [f"n{number}" for number in range(5)]


async def test_unit_that_runs_alone_is_undone_when_its_last_write_is_refused(
    postgres: PostgresServer, database: str
) -> None:
    async with opened(database) as store:
        await teach(store)
        with pytest.raises(Conflict, match=r"entry\.add"):
            await store.run(partial(note, text="n", account="nobody's"))
        await store.run(partial(note, text="after"))
    assert "n" not in notes_there(postgres, database)
    assert "after" in notes_there(postgres, database)
