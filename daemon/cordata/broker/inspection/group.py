"""Removes a consumer group by hand. A running worker does not add it again."""

from __future__ import annotations

import asyncio

from cordata.broker.inspection.outbox import unknown_group
from cordata.broker.inspection.record import BATCH, PAUSE_S, Progress
from cordata.store import Store


async def count_messages(store: Store, group: str) -> int:
    """All messages and dead letters of a group, which may have no row any more."""
    row = await store.read(lambda tx: tx.fetch_one("group.messages", group=group))
    assert row is not None
    return int(row["count"])


async def remove_group(store: Store, group: str, *, progress: Progress | None = None) -> int:
    """Delete a group, then its messages and dead letters. Marks stay as long as their events. A
    call after one that was stopped goes on.

    Returns how many messages. Raises: UnknownGroup.
    """
    whole = await count_messages(store, group)
    removed = await store.run(lambda tx: tx.execute("group.remove", group=group))
    if not (removed or whole):
        rows = await store.read(lambda tx: tx.fetch_all("group.names"))
        raise unknown_group(group, [row["group"] for row in rows])
    count = 0
    while True:
        deleted = await store.run(
            lambda tx: tx.execute("group.drop_messages", group=group, limit=BATCH)
        )
        count += deleted
        if progress is not None:
            progress(count, min(1.0, count / max(whole, 1)))
        if deleted < BATCH:
            return count
        await asyncio.sleep(PAUSE_S)
