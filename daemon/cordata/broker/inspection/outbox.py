"""The outbox by hand: look, make due, delete what is done with. Work is in small units."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

from cordata.broker.inspection.record import (
    BATCH,
    EVER,
    PAUSE_S,
    BadPosition,
    Entry,
    Filter,
    Page,
    Progress,
    WholeEntry,
)
from cordata.store import OUTBOX_TOPIC, Row, Store, Tx

#: Rows that one read looks through at most: a filter may match few of millions.
_WINDOW = 5000


class Outbox:
    """The outbox of a store, whether its workers run or not."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def page(self, wanted: Filter, *, limit: int, after: str | None = None) -> Page[Entry]:
        """`limit` entries at most, the newest first, from where the page before ended.

        Raises: BadPosition.
        """
        below: int | None = _position(after)
        found: list[Entry] = []
        while below is not None and len(found) <= limit:
            below, rows = await self._look(wanted, below, limit + 1 - len(found))
            found += [Entry(**dict(row)) for row in rows]
        more = len(found) > limit
        return Page(items=found[:limit], next=str(found[limit - 1].id) if more else None)

    async def get(self, event_id: str) -> WholeEntry | None:
        """One entry with its payload, and what became of it in each group."""

        async def unit(tx: Tx) -> WholeEntry | None:
            row = await tx.fetch_one("inspection.entry", event_id=event_id)
            groups = await tx.fetch_all("inspection.groups", event_id=event_id)
            if row is None:
                return None
            return WholeEntry(**dict(row), groups=[dict(group) for group in groups])

        return await self._store.read(unit)

    async def retry(self, wanted: Filter, *, progress: Progress | None = None) -> int:
        """Make pending entries due now, delayed ones too, and wake the relays. Returns how many."""
        wanted = replace(wanted, state="pending")
        count, after = 0, None
        while True:
            page = await self.page(wanted, limit=BATCH, after=after)
            if page.items:
                count += await self._make_due([entry.id for entry in page.items])
            if progress is not None:
                progress(count)
            if page.next is None:
                return count
            after = page.next
            await asyncio.sleep(PAUSE_S)

    async def purge(
        self, *, before: int, type: str | None = None, progress: Progress | None = None
    ) -> int:
        """Delete what was published before a moment and is in no group's hands. Returns how many.

        What a group has not handled yet, or has as a dead letter, stays.
        """
        count, after = 0, 0
        while True:
            page = await self._old(after, before, type)
            ids = [row["id"] for row in page if row["old"]]
            if ids:
                count += await self._delete(ids)
                await asyncio.sleep(PAUSE_S)
            if progress is not None:
                progress(count)
            # Ids grow with time: behind this page there is nothing that old.
            if len(page) < BATCH or page[-1]["created_at"] >= before:
                return count
            after = page[-1]["id"]

    async def _look(self, wanted: Filter, below: int, limit: int) -> tuple[int | None, list[Row]]:
        """One read: below which id to go on (None: that was all), and what matched."""

        async def unit(tx: Tx) -> tuple[int | None, list[Row]]:
            before = EVER if wanted.before is None else wanted.before
            narrow = {"type": wanted.type, "before": before, "limit": limit}
            if wanted.event_id is not None:
                row = await tx.fetch_one("inspection.entry_id", event_id=wanted.event_id)
                if row is None or row["id"] >= below:
                    return None, []
                ids = {"after": row["id"] + 1, "floor": row["id"], "state": wanted.state}
                return None, await tx.fetch_all("inspection.entries", **ids, **narrow)
            if wanted.state == "pending":
                return None, await tx.fetch_all("inspection.pending", after=below, **narrow)
            row = await tx.fetch_one("inspection.floor", after=below, limit=_WINDOW)
            assert row is not None
            floor: int | None = row["id"]
            if floor is None:
                return None, []
            ids = {"after": below, "floor": floor, "state": wanted.state}
            return floor, await tx.fetch_all("inspection.entries", **ids, **narrow)

        return await self._store.read(unit)

    async def _make_due(self, ids: list[int]) -> int:
        async def unit(tx: Tx) -> int:
            tx.notify(OUTBOX_TOPIC)
            return await tx.execute("inspection.make_due", ids=json.dumps(ids), now_us=tx.now_us)

        return await self._store.run(unit)

    async def _old(self, after: int, before: int, type: str | None) -> list[Row]:
        async def unit(tx: Tx) -> list[Row]:
            return await tx.fetch_all(
                "inspection.old", after=after, before=before, type=type, limit=BATCH
            )

        return await self._store.read(unit)

    async def _delete(self, ids: list[int]) -> int:
        async def unit(tx: Tx) -> int:
            return await tx.execute("retention.outbox", ids=json.dumps(ids))

        return await self._store.run(unit)


def _position(after: str | None) -> int:
    if after is None:
        return EVER
    if not (after.isascii() and after.isdecimal() and len(after) < 19):
        raise BadPosition(f"{after!r} is not where a page of the outbox ended")
    return int(after)
