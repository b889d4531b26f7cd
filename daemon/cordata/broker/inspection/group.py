"""Consumer groups by hand: list, rename, remove. A running worker does not add one again."""

from __future__ import annotations

import asyncio
import json

from cordata.broker.inspection.outbox import unknown_group
from cordata.broker.inspection.record import BATCH, PAUSE_S, Group, Progress, UnknownGroup
from cordata.errors import CordataError
from cordata.log import plural
from cordata.store import CLAIMABLE_TOPIC, Store, Tx


class GroupInUse(CordataError):
    """The group cannot be renamed while a worker has its messages."""

    code = "group_in_use"


class Groups:
    """The consumer groups of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def read(self, group: str | None = None) -> list[Group]:
        """All groups, or the one of this name, by name."""
        rows = await self._store.read(lambda tx: tx.fetch_all("group.list", group=group))
        return [Group(**dict(row)) for row in rows]

    async def rename(self, old: str, new: str, *, progress: Progress | None = None) -> int:
        """Give a group another name: its messages, dead letters and marks go with it.

        If there is a group of the new name, because workers with it were started before, both
        become one: what either has handled is not handled again. Returns how many messages were
        moved.

        Raises: UnknownGroup; GroupInUse while a worker has claimed messages of the old one.
        """
        await self._check(old, new)
        begun_at = self._store.now_us()
        await self._copy_marks(old, new, progress)
        names = {"old": old, "new": new}

        async def unit(tx: Tx) -> int:
            claimed = await tx.fetch_one("group.claimed", old=old)
            if claimed is not None and claimed["count"]:
                raise GroupInUse(
                    f"a worker holds {plural(claimed['count'], 'message')} of {old}",
                    hint="stop the workers that have it, then try again",
                )
            await tx.execute("group.copy_late_marks", **names, since=begun_at)
            await tx.execute("group.rename", **names, now_us=tx.now_us)
            await tx.execute("group.remove", group=old)
            await tx.execute("group.drop_handled", one=new, other=old, both=0)
            await tx.execute("group.drop_handled", one=old, other=new, both=1)
            tx.notify(CLAIMABLE_TOPIC)
            return await tx.execute("group.move_messages", **names)

        return await self._store.run(unit)

    async def remove(self, group: str, *, progress: Progress | None = None) -> int:
        """Delete a group with its messages and dead letters. Marks stay as long as their events.

        Returns how many messages. Raises: UnknownGroup.
        """
        known = next(iter(await self.read(group)), None)
        if known is None:
            raise await self._unknown(group)
        await self._store.run(lambda tx: tx.execute("group.remove", group=group))
        whole = known.ready + known.scheduled + known.claimed + known.dead
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

    async def _check(self, old: str, new: str) -> None:
        """Raises: UnknownGroup."""
        rows = await self._store.read(lambda tx: tx.fetch_all("group.types", old=old, new=new))
        types = {row["group"]: row["type"] for row in rows}
        if old not in types or old == new:
            raise await self._unknown(old)
        if types.get(new, types[old]) != types[old]:
            raise UnknownGroup(f"{new} handles {types[new]}, {old} handles {types[old]}")

    async def _unknown(self, group: str) -> UnknownGroup:
        rows = await self._store.read(lambda tx: tx.fetch_all("group.names"))
        return unknown_group(group, [row["group"] for row in rows])

    async def _copy_marks(self, old: str, new: str, progress: Progress | None) -> None:
        after = ""
        count = 0
        while True:
            event_ids = await self._marks(old, after)
            if not event_ids:
                return
            chosen = {"old": old, "new": new, "event_ids": json.dumps(event_ids)}
            await self._store.run(lambda tx, c=chosen: tx.execute("group.copy_marks", **c))  # type: ignore[misc]
            count += len(event_ids)
            if progress is not None:
                progress(count, 0.0)
            after = event_ids[-1]
            await asyncio.sleep(PAUSE_S)

    async def _marks(self, old: str, after: str) -> list[str]:
        rows = await self._store.read(
            lambda tx: tx.fetch_all("group.marks", old=old, after=after, limit=BATCH)
        )
        return [row["event_id"] for row in rows]
