"""Publishing again: an event keeps its id, so who has handled it leaves it alone.

outbox (published) ──one message──> each group without the event's seen-mark
                   ──mark deleted, one message──> the group that is to handle it anew
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

from cordata.broker.inspection import outbox
from cordata.broker.inspection.record import BATCH, PAUSE_S, Filter, Progress, Replayed
from cordata.broker.key import take_places
from cordata.broker.settle import STREAM_TOPIC
from cordata.errors import CordataError
from cordata.store import Row, Store, Tx

#: Rows that one read looks through at most.
_WINDOW = 5000


class UnknownGroup(CordataError):
    """No such consumer group."""

    code = "unknown_group"


async def publish_again(
    store: Store,
    wanted: Filter,
    *,
    group: str | None = None,
    again: bool = False,
    progress: Progress | None = None,
) -> Replayed:
    """Give published entries to all groups of their type once more, or to `group` only.

    The oldest come first. A group registered since then gets them too. `again` (with `group`):
    its seen-marks of them are forgotten, so that their effects happen once more. A group that has
    an event in hand, or as a dead letter, keeps it as it is. The workers are woken. Raises:
    UnknownGroup.
    """
    if again and group is None:
        raise ValueError("a mark is forgotten for one group")
    if group is not None:
        wanted = replace(wanted, type=await _checked_type(store, group, wanted.type))
    lowest, highest = await outbox.span(store)
    total, next_at, after = Replayed(), store.now_us(), lowest - 1
    while True:
        ceiling, ids = await _look(store, wanted, after)
        done_to = after
        for chunk in _chunks(ids):
            total += await _copy(store, chunk, group, again, next_at)
            done_to = chunk[-1]
            _tell(progress, total, done_to, lowest, highest)
            await asyncio.sleep(PAUSE_S)
        # What is written from now on is no matter of ours: an end even if the table grows on.
        if ceiling is None or ceiling >= highest:
            _tell(progress, total, highest, lowest, highest)
            return total
        after = ceiling
        _tell(progress, total, after, lowest, highest)


async def _checked_type(store: Store, group: str, type: str | None) -> str:
    """The type that the group handles. Raises: UnknownGroup."""

    async def unit(tx: Tx) -> tuple[Row | None, list[Row]]:
        known = await tx.fetch_all("inspection.known_groups")
        return await tx.fetch_one("inspection.group_type", group=group), known

    row, known = await store.read(unit)
    if row is None:
        names = ", ".join(one["group"] for one in known) or "none yet"
        raise UnknownGroup(f"there is no consumer group {group}", hint=f"there are: {names}")
    handled: str = row["type"]
    if type not in (None, handled):
        raise UnknownGroup(f"the consumer group {group} handles {handled}, not {type}")
    return handled


async def _look(store: Store, wanted: Filter, after: int) -> tuple[int | None, list[int]]:
    """One read upwards: to which id (None: there is nothing more), and what matched."""
    bounds = wanted.bounds()

    async def unit(tx: Tx) -> tuple[int | None, list[int]]:
        floor, ceiling = after + 1, None
        if wanted.event_id is not None:
            row = await tx.fetch_one("inspection.entry_id", event_id=wanted.event_id)
            if row is None:
                return None, []
            floor = top = row["id"]
        else:
            row = await tx.fetch_one("inspection.ceiling", after=after, limit=_WINDOW)
            assert row is not None
            if row["id"] is None or row["earliest"] >= bounds["before"]:  # the rest is younger
                return None, []
            ceiling = top = row["id"]
        rows = await tx.fetch_all(
            "inspection.entries",
            after=top + 1,
            floor=floor,
            state="published",
            type=wanted.type,
            lane=wanted.lane,
            error=None,
            group=wanted.group,
            **bounds,
            limit=_WINDOW,
        )
        return ceiling, [row["id"] for row in reversed(rows)]

    return await store.read(unit)


async def _copy(
    store: Store, ids: Sequence[int], group: str | None, again: bool, next_at: int
) -> Replayed:
    as_json = json.dumps(ids)

    async def unit(tx: Tx) -> Replayed:
        found = await tx.fetch_one("inspection.copies", ids=as_json, group=group)
        assert found is not None
        if again:
            await tx.execute("inspection.forget", ids=as_json, group=group)
        made = await tx.execute(
            "inspection.publish_again",
            ids=as_json,
            group=group,
            again=int(again),
            next_at=next_at,
        )
        if made:
            await take_places(tx, as_json)
            tx.notify(STREAM_TOPIC)
        return Replayed(entries=found["entries"], messages=made, left=found["messages"] - made)

    return await store.run(unit)


def _chunks(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(ids), BATCH):
        yield ids[start : start + BATCH]


def _tell(progress: Progress | None, total: Replayed, at: int, lowest: int, highest: int) -> None:
    if progress is not None:
        progress(total.entries, min(1.0, (at - lowest + 1) / max(highest - lowest + 1, 1)))
