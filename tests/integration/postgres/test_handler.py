"""Units of handlers: each goes with the mark of its message, and is of its own kind."""

from __future__ import annotations

import asyncio
from itertools import count

from tests.integration.postgres.parts import opened

from cordata.context import EventContext
from cordata.store import Store, Tx
from cordata.vault import Vault

_numbers = count(1)


def delivery(store: Store, group: str) -> EventContext:
    event_id = f"e{next(_numbers)}"
    return EventContext(store=store, vault=Vault(None), group=group, event_id=event_id)


async def test_handlers_that_read_before_they_write_share_their_commits(database: str) -> None:
    async with opened(database) as store:

        async def count_and_note(tx: Tx) -> None:
            row = await tx.fetch_one("entry.count")
            assert row is not None
            await tx.write("entry.add", account_id="a", amount=1, note=f"n{next(_numbers)}")

        async def handle(count: int) -> int:
            """Handlers at once; how many transactions they took."""
            before = store.stats().commits
            handlers = [delivery(store, "note").run(count_and_note) for _ in range(count)]
            await asyncio.gather(*handlers)
            return store.stats().commits - before

        await store.run(lambda tx: tx.execute("account.add_once", id="a", balance=0))
        for _ in range(4):  # whatever the store learns of them
            assert await handle(16) <= 3
        assert store.stats().units == 1 + 4 * 16


async def test_handler_that_locks_does_not_keep_the_units_of_another_apart(
    database: str,
) -> None:
    async with opened(database) as store:

        async def lock(tx: Tx) -> None:
            await tx.fetch_one("account.get_to_change", id="a")

        async def note(tx: Tx) -> None:
            await tx.write("entry.add", account_id="a", amount=1, note=f"n{next(_numbers)}")

        async def handle_all(count: int) -> None:
            locking = [delivery(store, "lock").run(lock) for _ in range(count)]
            noting = [delivery(store, "note").run(note) for _ in range(count)]
            await asyncio.gather(*locking, *noting)

        await store.run(lambda tx: tx.execute("account.add_once", id="a", balance=0))
        await handle_all(8)  # what locks is known to run alone from here on
        before = store.stats().commits
        await asyncio.gather(*[delivery(store, "note").run(note) for _ in range(16)])
        assert store.stats().commits - before <= 2
