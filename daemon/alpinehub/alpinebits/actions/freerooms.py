"""FreeRooms: hotel software pushes how many rooms are free, as a complete set or a delta."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial

from alpinehub.alpinebits.actions.handshake import last_agreed
from alpinehub.alpinebits.call import Call, ResponseBody, read
from alpinehub.alpinebits.inbound import (
    TRIES,
    Document,
    Update,
    find_document,
    lost_every_race,
    receive,
    write_document,
)
from alpinehub.alpinebits.outcome import MISSING, UNABLE, Finding, MessageRejected, Outcome, error
from alpinehub.alpinebits.reader import Reader
from alpinehub.alpinebits.rules import room_counts
from alpinehub.alpinebits.rules.freerooms import FreeRoomsMessage
from alpinehub.alpinebits.rules.inbound_message import FAR, TOO_FAR
from cordata import from_us

_SEND_FREEROOMS = "ALPINEBITS_SEND_FREEROOMS"
#: How long past nights are stored.
_PAST = timedelta(days=30)
#: Age from which on a complete set is requested again.
_STALE_US = 48 * 3600 * 1_000_000
#: More than 200 rooms that change each night for three years.
_MAX_PERIODS = 250_000
#: A capability of the handshake, and the protocol's year from which on it must be agreed upon.
_THRESHOLD, _THRESHOLD_SINCE = "OTA_HotelAvailNotif_accept_BookingThreshold", 2018


async def receive_free_rooms(call: Call, *, reader: Reader[FreeRoomsMessage]) -> ResponseBody:
    """OTA_HotelAvailNotif:FreeRooms, and from 2020-10 on OTA_HotelInvCountNotif:FreeRooms."""
    message = await read(call, reader)
    return await receive(call, message, partial(_store, message=message))


async def _store(update: Update, message: FreeRoomsMessage) -> Outcome:
    """Apply the message to the stored free rooms. Raises: MessageRejected; StoreUnavailable;
    TransportError (503) after TRIES concurrent updates.
    """
    ctx = update.call.ctx
    await _check_thresholds(update.call, message)
    now_us = ctx.now_us()
    for _ in range(TRIES):
        before = await find_document(ctx.store, update.hotel.id, "freerooms")
        body, outcome = await asyncio.to_thread(apply_message, message, before, now_us)
        if await write_document(
            update, "freerooms", body, outcome, before=before, complete=message.complete
        ):
            return outcome
    raise lost_every_race()


def apply_message(
    message: FreeRoomsMessage, before: Document, now_us: int
) -> tuple[bytes, Outcome]:
    """The free rooms after a message: those of a complete set, or a delta laid over `before`.

    Raises: MessageRejected.
    """
    today = from_us(now_us).date().toordinal()
    near = room_counts.cut(message.rooms, last=today + FAR.days)
    findings = []
    if near != message.rooms:
        findings.append(TOO_FAR)
    if message.complete:
        result = room_counts.apply_complete_set(near)
    else:
        body = before.body()
        stored = room_counts.decode(body) if body else room_counts.FreeRooms()
        if near.entries and {bool(key.room) for key in stored.entries} - {near.distinct}:
            text = "what is known is of the other kind: distinct rooms or room categories; send all"
            raise MessageRejected(error(UNABLE, text, status=_SEND_FREEROOMS))
        recent = room_counts.cut(stored, first=today - _PAST.days)
        result = room_counts.apply_delta(recent, near)
        findings += _advice(before.complete_at, now_us)
    if room_counts.is_free_while_closed(near, result.closings):
        text = "rooms are free in a closing season: there they are not offered"
        findings.append(Finding(kind="advisory", text=text))
    if result.size > _MAX_PERIODS:
        text = "there are too many periods"
        raise MessageRejected(error(UNABLE, text, status=_SEND_FREEROOMS))
    return room_counts.encode(result), Outcome(tuple(findings))


def _advice(complete_at: int | None, now_us: int) -> list[Finding]:
    """An advisory to send a complete set, if there is none or only an old one."""
    if complete_at is None:
        text = "no full data set has been received yet"
    elif complete_at < now_us - _STALE_US:
        text = "last full data set received more than 48 hours ago"
    else:
        return []
    return [Finding(kind="advisory", text=text, status=_SEND_FREEROOMS)]


async def _check_thresholds(call: Call, message: FreeRoomsMessage) -> None:
    """Raises: MessageRejected if BookingThreshold, which changes what BookingLimit means, does not
    fit the handshake. Before there were handshakes it was optional.
    """
    if not message.thresholds or call.protocol.year < _THRESHOLD_SINCE:
        return
    common = await last_agreed(call.ctx, call.account.id, call.protocol.name)
    agreed = _THRESHOLD in common.get("action_OTA_HotelAvailNotif", ())
    if agreed and message.thresholds != "all":
        text = "BookingThreshold is missing, though it was agreed upon"
        raise MessageRejected(error(MISSING, text))
    if not agreed and message.thresholds != "none":
        text = f"BookingThreshold needs a handshake that agrees upon {_THRESHOLD}"
        raise MessageRejected(error(UNABLE, text))
