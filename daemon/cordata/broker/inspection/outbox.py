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
from cordata.errors import Conflict
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
        """Make due now what waits, scheduled ones too, and what the relay has given up.

        Wakes the relays. Returns how many.
        """
        lowest, highest = await span(self._store)
        # What waits is found by its index, what was given up by a walk: first things first.
        states = ("pending", "failed", "dead") if wanted.state is None else (wanted.state,)
        count = 0
        for number, state in enumerate(states):
            after: str | None = None
            while True:
                page = await self.page(replace(wanted, state=state), limit=BATCH, after=after)
                if page.items:
                    count += await self._make_due([entry.id for entry in page.items])
                if progress is not None:
                    left = 0 if page.next is None else int(page.next) - lowest
                    share = 1 - left / max(highest - lowest, left, 1)
                    progress(count, (number + share) / len(states))
                if page.next is None:
                    break
                after = page.next
                await asyncio.sleep(PAUSE_S)
        return count

    async def purge(self, wanted: Filter, *, progress: Progress | None = None) -> int:
        """Delete what was published before `wanted.before` and is in no group's hands.

        What a group has not handled yet, or has as a dead letter, stays. Of the rest of the filter
        `type`, `lane` and `since` count. Returns how many.
        """
        before = EVER if wanted.before is None else wanted.before
        lowest, highest = await span(self._store)
        count, after = 0, lowest - 1
        while True:
            page = await self._old(after, wanted)
            ids = [row["id"] for row in page if row["old"]]
            if ids:
                count += await self._delete(ids)
                await asyncio.sleep(PAUSE_S)
            # Ids grow with time: behind this page there is nothing that old.
            ended = len(page) < BATCH or page[-1]["created_at"] >= before
            if progress is not None:
                walked = 0 if ended else page[-1]["id"] - lowest
                progress(count, 1.0 if ended else min(1.0, walked / max(highest - lowest, 1)))
            if ended:
                return count
            after = page[-1]["id"]

    async def _look(self, wanted: Filter, below: int, limit: int) -> tuple[int | None, list[Row]]:
        """One read: below which id to go on (None: that was all), and what matched."""
        narrow = {
            "state": wanted.state,
            "type": wanted.type,
            "lane": wanted.lane,
            "error": wanted.error,
            **wanted.bounds(),
        }

        async def unit(tx: Tx) -> tuple[int | None, list[Row]]:
            if wanted.event_id is not None:
                row = await tx.fetch_one("inspection.entry_id", event_id=wanted.event_id)
                if row is None or row["id"] >= below:
                    return None, []
                ids = {"after": row["id"] + 1, "floor": row["id"], "group": wanted.group}
                return None, await tx.fetch_all("inspection.entries", **ids, **narrow, limit=1)
            if wanted.state in ("pending", "failed") and wanted.group is None:
                # At once: nothing is read but what waits.
                return None, await tx.fetch_all(
                    "inspection.waiting", after=below, **narrow, limit=limit
                )
            row = await tx.fetch_one("inspection.floor", after=below, limit=_WINDOW)
            assert row is not None
            if row["id"] is None or row["latest"] < wanted.bounds()["since"]:
                return None, []  # the rest is older still
            ids = {"after": below, "floor": row["id"], "group": wanted.group}
            rows = await tx.fetch_all("inspection.entries", **ids, **narrow, limit=limit)
            return row["id"], rows

        return await self._store.read(unit)

    async def _make_due(self, ids: list[int]) -> int:
        async def unit(tx: Tx) -> int:
            tx.notify(OUTBOX_TOPIC)
            return await tx.execute("inspection.make_due", ids=json.dumps(ids), now_us=tx.now_us)

        return await self._store.run(unit)

    async def _old(self, after: int, wanted: Filter) -> list[Row]:
        async def unit(tx: Tx) -> list[Row]:
            narrow = {"type": wanted.type, "lane": wanted.lane, **wanted.bounds()}
            return await tx.fetch_all("inspection.old", after=after, limit=BATCH, **narrow)

        return await self._store.read(unit)

    async def _delete(self, ids: list[int]) -> int:
        async def unit(tx: Tx) -> int:
            return await tx.execute("retention.outbox", ids=json.dumps(ids))

        try:
            return await self._store.run(unit)
        except Conflict:  # one was published again at this very moment
            return 0


async def span(store: Store) -> tuple[int, int]:
    """The lowest and the highest id of the outbox, 0 for both when it is empty."""

    async def unit(tx: Tx) -> tuple[int, int]:
        row = await tx.fetch_one("inspection.span")
        assert row is not None
        return row["lowest"] or 0, row["highest"] or 0

    return await store.read(unit)


def _position(after: str | None) -> int:
    if after is None:
        return EVER
    if not (after.isascii() and after.isdecimal() and len(after) < 19):
        raise BadPosition(f"{after!r} is not where a page of the outbox ended")
    return int(after)
