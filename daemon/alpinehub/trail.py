"""The trail of a reservation: each event of it noted once, by whichever worker handles it."""

from __future__ import annotations

from alpinehub import counts
from cordata import Event, EventContext, Tx

#: What a source does to a reservation; the other events are what hotel software does.
_CHANGES = frozenset({"reservation.received", "reservation.modified", "reservation.cancelled"})


async def note(event: Event, ctx: EventContext) -> None:
    """Append the event to the trail; the row and the event's seen-mark commit together."""

    async def unit(tx: Tx) -> None:
        await tx.write(
            "note_event",
            reservation_id=event.payload["reservation_id"],
            version=event.payload["version"],
            event=event.type.removeprefix("reservation."),
            user_id=event.payload.get("user_id"),
            at=round(event.created_at.timestamp() * 1_000_000),
            request_id=event.headers.get("request_id", ""),
        )
        if event.type in _CHANGES:
            await counts.note_change(tx, event)

    await ctx.run(unit)
