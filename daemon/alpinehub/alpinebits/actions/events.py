"""EventReports: hotel software pushes activities. AlpineBits has no way to pull them."""

from __future__ import annotations

import zlib
from datetime import timedelta
from functools import partial

from alpinehub.alpinebits.call import Call, ResponseBody, read
from alpinehub.alpinebits.inbound import Update, receive
from alpinehub.alpinebits.outcome import UNABLE, MessageRejected, Outcome, error
from alpinehub.alpinebits.rules.events import EVENTS, EventsMessage
from cordata import Tx

#: Of one hotel.
MAX_ACTIVITIES = 5000
#: An event is deleted after this time without a report.
_KEPT_US = int(timedelta(days=400) / timedelta(microseconds=1))


async def receive_events(call: Call) -> ResponseBody:
    """OTA_HotelPostEventNotif:EventReports."""
    message = await read(call, EVENTS)
    return await receive(call, message, partial(_store, message=message))


async def _store(update: Update, message: EventsMessage) -> Outcome:
    await update.call.ctx.store.run(partial(_write, update=update, message=message))
    return Outcome()


async def _write(tx: Tx, update: Update, message: EventsMessage) -> None:
    hotel_id = update.hotel.id
    await tx.execute("activity_forget", hotel_id=hotel_id, before=tx.now_us - _KEPT_US)
    for one in sorted(message.reports, key=lambda one: (one.context, one.id)):
        event = {"hotel_id": hotel_id, "context": one.context, "event_id": one.id}
        if one.body is None:
            await tx.execute("activity_remove", **event)
            continue
        await tx.write(
            "activity_set",
            protocol=update.call.protocol.name,
            body=zlib.compress(one.body),
            now_us=tx.now_us,
            **event,
        )
    [row] = await tx.fetch_all("activity_count", hotel_id=hotel_id)
    if row["activities"] > MAX_ACTIVITIES:
        text = f"a hotel has at most {MAX_ACTIVITIES} activities here; delete some"
        raise MessageRejected(error(UNABLE, text))
    await update.record(tx, Outcome())
