"""FreeRooms: hotel software tells how many rooms are free, all of them or what has changed."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from alpinehub.alpinebits.agreement import recall
from alpinehub.alpinebits.call import Answer, Call, read
from alpinehub.alpinebits.document_store import Change, Document, change_document
from alpinehub.alpinebits.inbound import Push, note_alone, take
from alpinehub.alpinebits.outcome import Note, Outcome, failed
from alpinehub.alpinebits.protocol import AVAIL, INV_COUNT
from alpinehub.alpinebits.rules import freerooms, periods
from alpinehub.alpinebits.rules.freerooms import FreeRoomsMessage
from alpinehub.alpinebits.rules.inbound import FAR, MISSING, TOO_FAR, UNABLE, error
from cordata import from_us

if TYPE_CHECKING:
    from alpinehub.alpinebits.reader import Reader

_SEND_FREEROOMS = "ALPINEBITS_SEND_FREEROOMS"
#: Nights that are over are kept for so long.
_PAST = timedelta(days=30)
_STALE_US = 48 * 3600 * 1_000_000
#: 200 rooms that change each night for three years; a complete set of them is smaller than that.
_MAX_PERIODS = 250_000
#: Of the years in which it is for the agreement to say whether entries have it.
_THRESHOLD, _THRESHOLD_SINCE = "OTA_HotelAvailNotif_accept_BookingThreshold", 2018


async def take_avail(call: Call) -> Answer:
    """OTA_HotelAvailNotif:FreeRooms, until 2018-10."""
    return await _take(call, AVAIL, freerooms.AVAIL, "OTA_HotelAvailNotifRS")


async def take_counts(call: Call) -> Answer:
    """OTA_HotelInvCountNotif:FreeRooms, from 2020-10 on."""
    return await _take(call, INV_COUNT, freerooms.COUNTS, "OTA_HotelInvCountNotifRS")


async def _take(call: Call, action: str, reader: Reader[FreeRoomsMessage], response: str) -> Answer:
    told = await read(call, reader)

    async def store(push: Push) -> Outcome:
        if problem := await _threshold_problem(call, told):
            verdict = Outcome((problem,))
            await note_alone(push, verdict)
            return verdict
        now_us = call.ctx.now_us()
        return await change_document(push, "freerooms", partial(change, told, now_us))

    return await take(call, action, response, told, store)


def change(told: FreeRoomsMessage, now_us: int, old: Document) -> Change:
    """What becomes of what is known."""
    today = from_us(now_us).date().toordinal()
    rooms = told.rooms()
    near = periods.until(rooms, today + FAR.days)
    notes = []
    if near != rooms:
        notes.append(TOO_FAR)
    if told.complete:
        known = periods.replaced(near)
    else:
        before = periods.decode(old.body) if old.body else periods.FreeRooms()
        if near.entries and {bool(key.room) for key in before.entries} - {near.distinct}:
            text = "what is known is of the other kind: distinct rooms or room categories; send all"
            return Change(verdict=failed(UNABLE, text, status=_SEND_FREEROOMS))
        known = periods.changed(periods.since(before, today - _PAST.days), near)
        notes += _advice(old.complete_at, now_us)
    if periods.is_free_while_closed(near, known.closings):
        text = "rooms are free in a closing season: there they are not offered"
        notes.append(Note(kind="advisory", text=text))
    if known.size > _MAX_PERIODS:
        return Change(verdict=failed(UNABLE, "there are too many periods", status=_SEND_FREEROOMS))
    body = periods.encode(known)
    return Change(verdict=Outcome(tuple(notes)), body=body, complete=told.complete)


def _advice(complete_at: int | None, now_us: int) -> list[Note]:
    """That a complete set would be better than a delta."""
    if complete_at is None:
        text = "no full data set has been received yet"
    elif complete_at < now_us - _STALE_US:
        text = "last full data set received more than 48 hours ago"
    else:
        return []
    return [Note(kind="advisory", text=text, status=_SEND_FREEROOMS)]


async def _threshold_problem(call: Call, told: FreeRoomsMessage) -> Note | None:
    """BookingThreshold changes what BookingLimit means: it is there if that was agreed upon.

    Before there were handshakes it might be left out.
    """
    if not told.thresholds or call.protocol.year < _THRESHOLD_SINCE:
        return None
    common = await recall(call.ctx, call.account.id, call.protocol.name)
    agreed = _THRESHOLD in common.get("action_OTA_HotelAvailNotif", ())
    if agreed and told.thresholds != "all":
        return error(MISSING, "BookingThreshold is missing, though it was agreed upon")
    if not agreed and told.thresholds != "none":
        return error(UNABLE, f"BookingThreshold needs a handshake that agrees upon {_THRESHOLD}")
    return None
