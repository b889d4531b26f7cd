"""Dead letters by hand: list, give back to the group that failed, delete."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import fields
from itertools import groupby
from operator import attrgetter

from cordata.broker.inspection.record import (
    BATCH,
    EVER,
    PAUSE_S,
    BadPosition,
    DeadLetter,
    Filter,
    Page,
    Progress,
    WholeDeadLetter,
)
from cordata.core.message_state import read_failures
from cordata.core.number import parse_number
from cordata.store import CLAIMABLE_TOPIC, Row, Store, Tx

_LETTER = tuple(one.name for one in fields(DeadLetter) if one.name != "error")


class DeadLetters:
    """The dead letters of all groups of a store, whether its workers run or not."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def page(
        self, wanted: Filter, *, limit: int, after: str | None = None
    ) -> Page[DeadLetter]:
        """At most `limit` dead letters, the newest first. `after`: `next` of the page before.

        Raises: BadPosition.
        """
        if wanted.event_id is not None:  # few: one for each group that failed
            letters = map(_letter, await self._of(wanted.event_id, wanted.group))
            return Page(items=[one for one in letters if _matches(one, wanted)], next=None)
        found: list[DeadLetter] = []
        below = _position(after)
        while len(found) <= limit:
            letters_below = await self._below(wanted, below, max(limit + 1, BATCH))
            found += [one for one in letters_below if _matches(one, wanted)]
            if len(letters_below) < max(limit + 1, BATCH):
                break
            below = _key(letters_below[-1])
        more = len(found) > limit
        return Page(items=found[:limit], next=_end(found[limit - 1]) if more else None)

    async def find(self, event_id: str, *, group: str | None = None) -> list[WholeDeadLetter]:
        """All dead letters of one event, or that of one group, with payload and history."""
        return [_whole(row) for row in await self._of(event_id, group)]

    async def replay(self, wanted: Filter, *, progress: Progress | None = None) -> int:
        """Give dead letters back to the group that failed, with all its attempts.

        Their history stays, other groups of the event are not affected, and effects that the group
        has committed are not repeated. The workers are woken. Returns how many.
        """
        return await self._each("inspection.give_back", wanted, progress)

    async def drop(self, wanted: Filter, *, progress: Progress | None = None) -> int:
        """Delete dead letters: these groups never handle these events. Returns how many."""
        return await self._each("inspection.drop", wanted, progress)

    async def _below(
        self, wanted: Filter, below: tuple[int, int, str], limit: int
    ) -> list[DeadLetter]:
        rows = await self._store.read(
            lambda tx: tx.fetch_all(
                "inspection.letters",
                dead_at=below[0],
                position=below[1],
                after_group=below[2],
                group=wanted.group,
                type=wanted.type,
                **wanted.bounds(),
                limit=limit,
            )
        )
        return [_letter(row) for row in rows]

    async def _of(self, event_id: str, group: str | None) -> list[Row]:
        return await self._store.read(
            lambda tx: tx.fetch_all("inspection.letters_of", event_id=event_id, group=group)
        )

    async def _each(self, query: str, wanted: Filter, progress: Progress | None) -> int:
        """Page by page, from new to old: a replayed message that fails again is not found again."""
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
        """No matching dead letter is older than this: the end of a walk, for its progress."""

        async def unit(tx: Tx) -> int:
            row = await tx.fetch_one("inspection.first_death")
            assert row is not None
            return max(row["dead_at"] or 0, wanted.bounds()["since"])

        return await self._store.read(unit)

    async def _settle(self, query: str, letters: Sequence[DeadLetter]) -> int:
        looked_at = max(letter.dead_at for letter in letters)
        by_group = sorted(letters, key=attrgetter("group"))

        async def unit(tx: Tx) -> int:
            count = 0
            for group, some in groupby(by_group, key=attrgetter("group")):
                event_ids = json.dumps([letter.event_id for letter in some])
                those = {"event_ids": event_ids, "group": group, "not_after": looked_at}
                if query == "inspection.drop":
                    await tx.execute("inspection.mark_dropped", **those, now_us=tx.now_us)
                    count += await tx.execute(query, **those)
                else:
                    count += await tx.execute(query, **those, now_us=tx.now_us)
                    tx.notify(CLAIMABLE_TOPIC)
            return count

        return await self._store.run(unit)


def _letter(row: Row) -> DeadLetter:
    history = read_failures(row["history"])
    kind = str(history[-1].get("error")).partition(":")[0] if history else None
    return DeadLetter(**{name: row[name] for name in _LETTER}, error=kind)


def _whole(row: Row) -> WholeDeadLetter:
    more = {name: row[name] for name in row.keys() if name != "history"}
    history = read_failures(row["history"])
    error = str(history[-1].get("error")) if history else None
    return WholeDeadLetter(**more, error=error, history=history)


def _matches(letter: DeadLetter, wanted: Filter) -> bool:
    bounds = wanted.bounds()
    return (
        wanted.type in (None, letter.type)
        and wanted.error in (None, letter.error)
        and bounds["since"] <= letter.dead_at < bounds["before"]
    )


def _key(letter: DeadLetter) -> tuple[int, int, str]:
    return letter.dead_at, letter.position, letter.group


def _end(letter: DeadLetter) -> str:
    return f"{letter.dead_at}.{letter.position}.{letter.group}"


def _position(after: str | None) -> tuple[int, int, str]:
    if after is None:
        return EVER, EVER, ""
    dead_at, _, rest = after.partition(".")
    position, dot, group = rest.partition(".")
    at, number = parse_number(dead_at), parse_number(position)
    if not dot or at is None or number is None:
        raise BadPosition(f"{after!r} is not the end of a page of dead letters")
    return at, number, group
