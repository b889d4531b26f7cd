"""The trail of a reservation: what became of it, appended only."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from alpinehub import counts
from cordata import request_id

if TYPE_CHECKING:  # a child of the pool, which reads large messages, needs no store
    from cordata import Event, EventContext, Tx

#: What a source does to a reservation; the other events are what hotel software does.
_CHANGES = frozenset({"reservation.received", "reservation.modified", "reservation.cancelled"})
#: What is kept of such an event beside who did it.
_DETAILS = ("protocol", "client_id", "res_status")


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """Something that became of a version."""

    reservation_id: str
    version: int
    event: str
    #: Of hotel software, where it did it.
    account_id: int | None = None
    #: What else there is to say of it; nothing that a guest wrote.
    detail: Mapping[str, object] | None = None
    #: Microseconds since the epoch; None: now.
    at: int | None = None
    #: None: of the request in hand.
    request_id: str | None = None


async def add(tx: Tx, *rows: HistoryEntry) -> None:
    """Append to the trail; within the unit that does what is noted."""
    for row in rows:
        await tx.write("history_add", **_values(tx, row))


async def add_once(tx: Tx, *rows: HistoryEntry) -> int:
    """Append those with a detail of which the same is not there yet; how many that were."""
    return await tx.execute_many("history_add_once", [_values(tx, row) for row in rows])


async def note_once(tx: Tx, row: HistoryEntry) -> None:
    """Append one with a detail unless the same is there."""
    await tx.write("history_add_once", **_values(tx, row))


def _values(tx: Tx, row: HistoryEntry) -> dict[str, str | int | None]:
    return {
        "reservation_id": row.reservation_id,
        "version": row.version,
        "event": row.event,
        "account_id": row.account_id,
        "at": tx.now_us if row.at is None else row.at,
        "request_id": request_id.get() if row.request_id is None else row.request_id,
        "detail": msgspec.json.encode(row.detail).decode() if row.detail else None,
    }


async def note(
    event: Event, ctx: EventContext, *then: Callable[[Tx], Awaitable[None]] | None
) -> None:
    """Append an event that was published; the row, the event's seen-mark and what `then` does
    commit together.
    """
    row = HistoryEntry(
        reservation_id=event.payload["reservation_id"],
        version=event.payload["version"],
        event=event.type.removeprefix("reservation."),
        account_id=event.payload.get("account_id"),
        detail={name: said for name in _DETAILS if (said := event.payload.get(name))},
        at=round(event.created_at.timestamp() * 1_000_000),
        request_id=event.headers.get("request_id", ""),
    )

    async def unit(tx: Tx) -> None:
        await add(tx, row)
        if event.type in _CHANGES:
            await counts.note_change(tx, event)
        for one in then:
            if one is not None:
                await one(tx)

    await ctx.run(unit)
