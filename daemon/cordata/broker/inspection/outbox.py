"""The outbox by hand: list, make due, publish again, delete what is done. Work is in small units.

Publishing again keeps the event's id, so a group that has handled it does not handle it again:

    event ──one message──> each group that has neither a message nor a mark
          ──mark deleted, one message──> the group that is to handle it again
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial

from cordata.broker.inspection.record import (
    BATCH,
    EVER,
    PAUSE_S,
    BadPosition,
    Filter,
    OutboxEvent,
    Page,
    Progress,
    Replayed,
    UnknownGroup,
    WholeOutboxEvent,
)
from cordata.core.number import parse_number
from cordata.store import CLAIMABLE_TOPIC, Row, Store, Tx

#: Events that one read examines at most: a filter may match few of millions.
_WINDOW = 5000


class Outbox:
    """The outbox of a store, whether its workers run or not."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def page(
        self, wanted: Filter, *, limit: int, after: str | None = None
    ) -> Page[OutboxEvent]:
        """At most `limit` events, the newest first. `after`: `next` of the page before.

        Raises: BadPosition.
        """
        below: int | None = _position(after)
        found: list[OutboxEvent] = []
        while below is not None and len(found) <= limit:
            below, entries = await self._look(wanted, below, limit + 1 - len(found))
            found += entries
        more = len(found) > limit
        return Page(items=found[:limit], next=str(found[limit - 1].position) if more else None)

    async def get(self, event_id: str) -> WholeOutboxEvent | None:
        """One event with its payload and its state in each group; None: no such event."""
        page = await self.page(Filter(event_id=event_id), limit=1)
        if not page.items:
            return None

        async def unit(tx: Tx) -> tuple[Row | None, list[Row]]:
            return (
                await tx.fetch_one("inspection.whole", event_id=event_id),
                await tx.fetch_all("inspection.groups", event_ids=json.dumps([event_id])),
            )

        row, groups = await self._store.read(unit)
        if row is None:
            return None
        (entry,) = page.items
        shown = ("group", "state", "attempts")
        states = [{name: one[name] for name in shown} for one in groups]
        return WholeOutboxEvent(**asdict(entry), **dict(row), groups=states)

    async def retry(self, wanted: Filter, *, progress: Progress | None = None) -> int:
        """Make messages due now that wait for a retry, or were published for later: of all groups,
        or of `wanted.group`.

        Wakes the workers. Returns how many messages.
        """

        async def make_due(event_ids: Sequence[str]) -> int:
            async def unit(tx: Tx) -> int:
                tx.notify(CLAIMABLE_TOPIC)
                those = {"event_ids": json.dumps(event_ids), "group": wanted.group}
                return await tx.execute("inspection.make_due", **those, now_us=tx.now_us)

            return await self._store.run(unit)

        waiting = replace(wanted, state="pending")
        return await self._each(waiting, lambda one: one.due_at is not None, make_due, progress)

    async def replay(
        self,
        wanted: Filter,
        *,
        group: str | None = None,
        again: bool = False,
        progress: Progress | None = None,
    ) -> Replayed:
        """Give events to all groups of their type once more, or to `group` only.

        The oldest come first. A group that has handled or claimed an event, or has it as a dead
        letter, keeps it as it is. `again` (with `group`): its marks are deleted, so that its
        effects happen once more. The workers are woken. Raises: UnknownGroup.
        """
        if again and group is None:
            raise ValueError("`again` needs a group: it deletes the marks of one group")
        if group is not None:
            wanted = replace(wanted, type=await self._checked_type(group, wanted.type))

        async def send(event_ids: Sequence[str]) -> Replayed:
            chosen: Mapping[str, object] = {"event_ids": json.dumps(event_ids), "group": group}

            async def unit(tx: Tx) -> Replayed:
                await tx.fetch_all("retention.lock", event_ids=chosen["event_ids"], lock=True)
                found = await tx.fetch_one("inspection.wanted", **chosen)
                assert found is not None
                if again:
                    await tx.execute("inspection.forget", **chosen)
                made = await tx.execute("inspection.replay", **chosen, now_us=tx.now_us)
                tx.notify(CLAIMABLE_TOPIC)
                return Replayed(
                    events=len(event_ids),
                    messages=made,
                    handled=0 if again else found["handled"],
                    waiting=found["waiting"],
                    dead=found["dead"],
                )

            return await self._store.run(unit)

        total = Replayed()
        lowest, highest = await self._span()
        after: int | None = lowest - 1
        while after is not None:
            after, entries = await self._look_up(wanted, after)
            for start in range(0, len(entries), BATCH):
                chunk = entries[start : start + BATCH]
                total += await send([entry.event_id for entry in chunk])
                _tell(progress, total.events, chunk[-1].position - lowest, highest - lowest)
                await asyncio.sleep(PAUSE_S)
            # Later events have their messages; without this end the walk might never end.
            if after is not None and after >= highest:
                break
        _tell(progress, total.events, 1, 1)
        return total

    async def purge(self, wanted: Filter, *, progress: Progress | None = None) -> int:
        """Delete events, with their marks, that all groups had handled before `wanted.before`.

        Events that a group has not handled yet, or has as a dead letter, stay. Of the other fields
        of the filter only `type` and `since` count. Returns how many.
        """
        before = wanted.bounds()["before"]
        return await self._each(
            replace(wanted, state="done"),
            lambda one: (one.handled_at or 0) < before,
            lambda event_ids: self._store.run(partial(delete_done, event_ids=event_ids)),
            progress,
        )

    async def _each(
        self,
        wanted: Filter,
        is_chosen: Callable[[OutboxEvent], bool],
        act: Callable[[Sequence[str]], Awaitable[int]],
        progress: Progress | None,
    ) -> int:
        """Call `act` with those of the wanted events that `is_chosen`, page by page, newest first.

        Returns the sum of what `act` returned.
        """
        lowest, highest = await self._span()
        count, after = 0, None
        while True:
            page = await self.page(wanted, limit=BATCH, after=after)
            if chosen := [one.event_id for one in page.items if is_chosen(one)]:
                count += await act(chosen)
            _tell(progress, count, highest - int(page.next or lowest), highest - lowest)
            if page.next is None:
                return count
            after = page.next
            await asyncio.sleep(PAUSE_S)

    async def _look(
        self, wanted: Filter, below: int, limit: int
    ) -> tuple[int | None, list[OutboxEvent]]:
        """One read downwards. Returns where the next one begins (None: end), and the matches."""

        async def unit(tx: Tx) -> tuple[int | None, list[OutboxEvent]]:
            if wanted.event_id is not None:
                position = await _position_of(tx, wanted.event_id)
                if position is None or position >= below:
                    return None, []
                return None, await _entries(tx, wanted, position, position + 1, 1)
            if wanted.state == "pending":
                rows = await tx.fetch_all("inspection.open", limit=_WINDOW + 1)
                if len(rows) <= _WINDOW:  # few: no walk through all that is done
                    return await _open_ones(
                        tx, wanted, [row["position"] for row in rows], below, limit
                    )
            row = await tx.fetch_one("inspection.below", after=below, limit=_WINDOW)
            assert row is not None
            floor = row["position"]
            if floor is None or row["latest"] < wanted.bounds()["since"]:
                return None, []  # the rest is older still
            return floor, await _entries(tx, wanted, floor, below, limit)

        return await self._store.read(unit)

    async def _look_up(self, wanted: Filter, after: int) -> tuple[int | None, list[OutboxEvent]]:
        """One read upwards. Returns where the next one begins (None: end), and the matches."""

        async def unit(tx: Tx) -> tuple[int | None, list[OutboxEvent]]:
            if wanted.event_id is not None:
                position = await _position_of(tx, wanted.event_id)
                if position is None:
                    return None, []
                return None, await _entries(tx, wanted, position, position + 1, 1)
            row = await tx.fetch_one("inspection.above", after=after, limit=_WINDOW)
            assert row is not None
            top = row["position"]
            if top is None or row["earliest"] >= wanted.bounds()["before"]:  # the rest is younger
                return None, []
            return top, (await _entries(tx, wanted, after + 1, top + 1, _WINDOW))[::-1]

        return await self._store.read(unit)

    async def _span(self) -> tuple[int, int]:
        """The lowest and the highest position, 0 for both when there is no event."""

        async def unit(tx: Tx) -> tuple[int, int]:
            row = await tx.fetch_one("inspection.span")
            assert row is not None
            return row["lowest"] or 0, row["highest"] or 0

        return await self._store.read(unit)

    async def _checked_type(self, group: str, type: str | None) -> str:
        """The type that the group handles. Raises: UnknownGroup."""

        async def unit(tx: Tx) -> tuple[Row | None, list[Row]]:
            known = await tx.fetch_all("group.names")
            return await tx.fetch_one("queue.group", group=group), known

        row, known = await self._store.read(unit)
        if row is None:
            raise unknown_group(group, [one["group"] for one in known])
        handled: str = row["type"]
        if type not in (None, handled):
            raise UnknownGroup(f"the consumer group {group} handles {handled}, not {type}")
        return handled


async def delete_done(tx: Tx, event_ids: Sequence[str]) -> int:
    """Delete events with their marks; one that is replayed at this moment stays.

    Returns how many were deleted.
    """
    ids = json.dumps(event_ids)
    await tx.fetch_all("retention.lock", event_ids=ids, lock=True)
    rows = await tx.fetch_all("retention.closed", event_ids=ids)
    closed = json.dumps([row["id"] for row in rows])
    await tx.execute("retention.handled", event_ids=closed)
    return await tx.execute("retention.event", event_ids=closed)


def unknown_group(group: str, known: Sequence[str]) -> UnknownGroup:
    """The error for a group that does not exist."""
    names = ", ".join(known) or "none yet"
    return UnknownGroup(f"there is no consumer group {group}", hint=f"there are: {names}")


async def _entries(tx: Tx, wanted: Filter, floor: int, after: int, limit: int) -> list[OutboxEvent]:
    rows = await tx.fetch_all(
        "inspection.events",
        floor=floor,
        after=after,
        type=wanted.type,
        state=wanted.state,
        group=wanted.group,
        **wanted.bounds(),
        now_us=tx.now_us,
        limit=limit,
    )
    return [OutboxEvent(**dict(row)) for row in rows]


async def _open_ones(
    tx: Tx, wanted: Filter, positions: Sequence[int], below: int, limit: int
) -> tuple[int | None, list[OutboxEvent]]:
    """As `_look`, for events at these positions."""
    top = max((position for position in positions if position < below), default=None)
    if top is None:
        return None, []
    floor = top - _WINDOW
    more = any(position < floor for position in positions)
    return floor if more else None, await _entries(tx, wanted, floor, top + 1, limit)


async def _position_of(tx: Tx, event_id: str) -> int | None:
    row = await tx.fetch_one("inspection.position", event_id=event_id)
    return None if row is None else int(row["position"])


def _position(after: str | None) -> int:
    if after is None:
        return EVER
    if (position := parse_number(after)) is None:
        raise BadPosition(f"{after!r} is not the end of a page of the outbox")
    return position


def _tell(progress: Progress | None, count: int, done: int, whole: int) -> None:
    if progress is not None:
        progress(count, min(1.0, done / max(whole, 1)))
