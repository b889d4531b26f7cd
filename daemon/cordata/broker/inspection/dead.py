"""Dead letters by hand: look, hand back to the group that failed, give up for good."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from cordata.broker.inspection.record import (
    BATCH,
    EVER,
    PAUSE_S,
    BadPosition,
    Filter,
    Letter,
    Page,
    Progress,
    WholeLetter,
)
from cordata.broker.key import take_places
from cordata.broker.settle import STREAM_TOPIC
from cordata.store import Row, Store, Tx


class DeadLetters:
    """The dead letters of all groups of a store, whether its workers run or not."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def page(self, wanted: Filter, *, limit: int, after: str | None = None) -> Page[Letter]:
        """`limit` letters at most, the latest death first, from where the page before ended.

        Raises: BadPosition.
        """
        dead_at, outbox_id, group = _position(after)

        async def unit(tx: Tx) -> list[Row]:
            if wanted.event_id is not None:
                return await tx.fetch_all(
                    "inspection.letters_of", event_id=wanted.event_id, group=wanted.group
                )
            return await tx.fetch_all(
                "inspection.letters",
                dead_at=dead_at,
                outbox_id=outbox_id,
                after_group=group,
                group=wanted.group,
                type=wanted.type,
                lane=wanted.lane,
                error=wanted.error,
                **wanted.bounds(),
                limit=limit + 1,
            )

        rows = await self._store.read(unit)
        if wanted.event_id is not None:  # a handful, one for each group that failed
            letters = [_letter(row, _kind(_read(row["history"]))) for row in rows]
            return Page(items=[one for one in letters if _matches(one, wanted)], next=None)
        found = [_letter(row, row["error"]) for row in rows[:limit]]
        return Page(items=found, next=_end(found[-1]) if len(rows) > limit else None)

    async def find(self, event_id: str, *, group: str | None = None) -> list[WholeLetter]:
        """All letters of one event, or the one of a group, with payload and history."""

        async def unit(tx: Tx) -> list[Row]:
            return await tx.fetch_all("inspection.letters_of", event_id=event_id, group=group)

        return [_whole(row) for row in await self._store.read(unit)]

    async def replay(self, wanted: Filter, *, progress: Progress | None = None) -> int:
        """Give letters back to the group that failed, as if they came for the first time.

        Their history stays, the other groups of the event notice nothing, and what the group had
        done already it does not do again. The workers are woken. Returns how many.
        """
        return await self._each("inspection.replay", wanted, progress)

    async def drop(self, wanted: Filter, *, progress: Progress | None = None) -> int:
        """Delete letters: these groups never handle these events. Returns how many."""
        return await self._each("inspection.drop", wanted, progress)

    async def _each(self, query: str, wanted: Filter, progress: Progress | None) -> int:
        """Page by page towards older deaths: a letter that dies again is not met again."""
        count, after, latest = 0, None, 0
        earliest = await self._first_death(wanted)
        while True:
            page = await self.page(wanted, limit=BATCH, after=after)
            if page.items:
                count += await self._settle(query, page.items)
                latest = latest or page.items[0].dead_at
            if progress is not None:
                left = 0 if page.next is None else page.items[-1].dead_at - earliest
                progress(count, 1 - left / max(latest - earliest, left, 1))
            if page.next is None:
                return count
            after = page.next
            await asyncio.sleep(PAUSE_S)

    async def _first_death(self, wanted: Filter) -> int:
        """No letter that is wanted died before it: towards which moment a walk goes."""

        async def unit(tx: Tx) -> int:
            row = await tx.fetch_one("inspection.first_death")
            assert row is not None
            return max(row["dead_at"] or 0, wanted.bounds()["since"])

        return await self._store.read(unit)

    async def _settle(self, query: str, letters: Sequence[Letter]) -> int:
        keys = json.dumps([(letter.id, letter.group) for letter in letters])
        looked_at = max(letter.dead_at for letter in letters)

        async def unit(tx: Tx) -> int:
            if query == "inspection.drop":
                return await tx.execute(query, letters=keys, not_after=looked_at)
            tx.notify(STREAM_TOPIC)
            count = await tx.execute(query, letters=keys, not_after=looked_at, now_us=tx.now_us)
            await take_places(tx, json.dumps([letter.id for letter in letters]))
            return count

        return await self._store.run(unit)


def _letter(row: Row, error: str | None) -> Letter:
    return Letter(
        id=row["outbox_id"],
        event_id=row["event_id"],
        group=row["group"],
        type=row["type"],
        lane=row["lane"],
        attempts=row["attempts"],
        created_at=row["created_at"],
        dead_at=row["dead_at"],
        error=error,
    )


def _whole(row: Row) -> WholeLetter:
    more = {name: row[name] for name in row.keys() if name not in ("outbox_id", "history")}
    history = _read(row["history"])
    error = str(history[-1].get("error")) if history else None
    return WholeLetter(id=row["outbox_id"], **more, error=error, history=history)


def _kind(history: Sequence[Mapping[str, Any]]) -> str | None:
    """What stands before the colon of the last error."""
    return str(history[-1].get("error")).partition(":")[0] if history else None


def _read(history: str | None) -> list[Mapping[str, Any]]:
    """The failures; none when the text is damaged, which is no reason to show nothing."""
    try:
        return list(json.loads(history or "[]"))
    except ValueError:
        return []


def _matches(letter: Letter, wanted: Filter) -> bool:
    bounds = wanted.bounds()
    return (
        wanted.type in (None, letter.type)
        and wanted.lane in (None, letter.lane)
        and wanted.error in (None, letter.error)
        and bounds["since"] <= letter.dead_at < bounds["before"]
    )


def _end(letter: Letter) -> str:
    return f"{letter.dead_at}.{letter.id}.{letter.group}"


def _position(after: str | None) -> tuple[int, int, str]:
    if after is None:
        return EVER, EVER, ""
    dead_at, _, rest = after.partition(".")
    outbox_id, dot, group = rest.partition(".")
    if not (dot and all(_is_number(part) for part in (dead_at, outbox_id))):
        raise BadPosition(f"{after!r} is not where a page of dead letters ended")
    return int(dead_at), int(outbox_id), group


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 19
