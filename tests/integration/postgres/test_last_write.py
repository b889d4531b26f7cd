"""Units in a transaction of their own, whose last writes go with the COMMIT."""

from __future__ import annotations

from functools import partial

import pytest
from tests.integration.postgres.parts import Cutter, Wire, notes_there, opened
from tests.servers.postgres import PostgresServer

from cordata.errors import Conflict
from cordata.store import Tx


async def note(tx: Tx, text: str, account: str = "a") -> None:
    """What it writes last goes with its COMMIT."""
    await tx.execute("account.add_once", id="a", balance=0)
    await tx.fetch_one("account.get_to_change", id="a")
    await tx.write("entry.add", account_id=account, amount=1, note=text)


@pytest.mark.parametrize("answered", [True, False])
async def test_unit_is_committed_once_when_its_last_words_are_cut_off(
    postgres: PostgresServer, database: str, answered: bool
) -> None:
    async with Wire(postgres.port) as wire:
        async with opened(wire.url(database), prepared_statements=False) as store:
            for number in range(5):
                wire.look = cutter = Cutter(b"INSERT INTO entry", answered=answered)
                await store.run(partial(note, text=f"n{number}"))
                assert cutter.cuts == 1
        found = [text for text in notes_there(postgres, database) if text.startswith("n")]
        assert sorted(found) == [f"n{number}" for number in range(5)]


async def test_unit_is_undone_when_its_last_write_is_refused(
    postgres: PostgresServer, database: str
) -> None:
    async with opened(database) as store:
        with pytest.raises(Conflict, match=r"entry\.add"):
            await store.run(partial(note, text="n", account="nobody's"))
        await store.run(partial(note, text="after"))
    assert "n" not in notes_there(postgres, database)
    assert "after" in notes_there(postgres, database)
