"""Units of handlers: each goes with the mark of its message."""

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
    return EventContext(store=store, vault=Vault(None), group=group, event_id=event_id, _batch=True)


async def test_batched_handlers_share_their_commits(database: str) -> None:
    async with opened(database) as store:

        async def count_and_note(tx: Tx) -> None:
            row = await tx.fetch_one("entry.count")
            assert row is not None
            await tx.insert("entry", account_id="a", amount=1, note=f"n{next(_numbers)}")

        async def handle(count: int) -> int:
            """Handlers at once; how many transactions they took."""
            before = store.stats().commits
            handlers = [delivery(store, "note").run(count_and_note) for _ in range(count)]
            await asyncio.gather(*handlers)
            return store.stats().commits - before

        await store.run(lambda tx: tx.execute("account.add_once", id="a", balance=0))
        for _ in range(4):
            assert await handle(16) <= 3
        assert store.stats().units == 1 + 4 * 16
