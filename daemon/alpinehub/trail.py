"""The trail of a reservation: each event of it noted once, by whichever worker handles it."""

from __future__ import annotations

from cordata import Event, EventContext, Tx


async def note(event: Event, ctx: EventContext) -> None:
    """Append the event to the trail; the row and the event's seen-mark commit together."""

    async def unit(tx: Tx) -> None:
        await tx.execute(
            "note_event",
            reservation_id=event.payload["reservation_id"],
            version=event.payload["version"],
            event=event.type.removeprefix("reservation."),
            at=tx.now_us,
            request_id=event.headers.get("request_id", ""),
        )

    await ctx.run(unit)
