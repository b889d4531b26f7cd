"""Consumer groups by hand: list, remove. A running worker does not add one again."""

from __future__ import annotations

import asyncio

from cordata.broker.inspection.outbox import unknown_group
from cordata.broker.inspection.record import BATCH, PAUSE_S, Group, Progress, UnknownGroup
from cordata.store import Store


class Groups:
    """The consumer groups of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def read(self, group: str | None = None) -> list[Group]:
        """All groups, or the one of this name, by name."""
        rows = await self._store.read(lambda tx: tx.fetch_all("group.list", group=group))
        return [Group(**dict(row)) for row in rows]

    async def remove(self, group: str, *, progress: Progress | None = None) -> int:
        """Delete a group, then its messages and dead letters. Marks stay as long as their events.
        A call after one that was stopped goes on.

        Returns how many messages. Raises: UnknownGroup.
        """
        left = await self._store.read(lambda tx: tx.fetch_one("group.messages", group=group))
        assert left is not None
        whole = left["count"]
        removed = await self._store.run(lambda tx: tx.execute("group.remove", group=group))
        if not (removed or whole):
            raise await self._unknown(group)
        count = 0
        while True:
            deleted = await self._store.run(
                lambda tx: tx.execute("group.drop_messages", group=group, limit=BATCH)
            )
            count += deleted
            if progress is not None:
                progress(count, min(1.0, count / max(whole, 1)))
            if deleted < BATCH:
                return count
            await asyncio.sleep(PAUSE_S)

    async def _unknown(self, group: str) -> UnknownGroup:
        rows = await self._store.read(lambda tx: tx.fetch_all("group.names"))
        return unknown_group(group, [row["group"] for row in rows])
