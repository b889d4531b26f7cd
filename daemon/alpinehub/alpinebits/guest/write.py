"""A guest request as XML of one protocol version: a pure function, or the reason why it cannot be.

What a version cannot hold is left out or cut (campaign ids) where the hotel loses nothing by it;
where it would, the record is held and says why. Everything stays in full in the store.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from alpinehub.alpinebits.guest.info import global_info
from alpinehub.alpinebits.guest.person import guests, is_known
from alpinehub.alpinebits.guest.record import Record, Undeliverable, UndeliverableCode
from alpinehub.alpinebits.guest.stay import room_stays
from alpinehub.alpinebits.markup import attribute, clean
from alpinehub.alpinebits.outcome import opening
from alpinehub.alpinebits.protocol import Protocol
from alpinehub.reservations import STAY

if TYPE_CHECKING:
    from alpinehub.models import Hotel


def response_start() -> bytes:
    """A list of guest requests up to the first of them."""
    return f"{opening('OTA_ResRetrieveRS')}<Success/><ReservationsList>".encode()


RESPONSE_END = b"</ReservationsList></OTA_ResRetrieveRS>"


def response(reservations: Iterable[bytes]) -> bytes:
    """The whole OTA_ResRetrieveRS around rendered reservations; none is an empty list."""
    return b"".join((response_start(), *reservations, RESPONSE_END))


def render(record: Record, hotel: Hotel, protocol: Protocol) -> bytes:
    """One HotelReservation. Raises: Undeliverable."""
    if protocol.max_hotel_code_chars and len(hotel.code) > protocol.max_hotel_code_chars:
        text = f"the hotel code is longer than {protocol.max_hotel_code_chars} characters"
        raise Undeliverable(UndeliverableCode.HOTEL_CODE_LONG, text)
    lead = _is_lead(record)
    if lead and not protocol.no_stay:
        text = "what has no stay (a newsletter, a question) exists only from version 2022-10 on"
        raise Undeliverable(UndeliverableCode.NO_STAY, text)
    start, body = _start(record, protocol, lead), _body(record, hotel, protocol, lead)
    return f"{start}{body}</HotelReservation>".encode()


def _is_lead(record: Record) -> bool:
    """Whether nothing at all is said of a stay: who wants the newsletter, or asks something."""
    data = record.data
    return record.res_status == "Requested" and not any(getattr(data, name) for name in STAY)


def _start(record: Record, protocol: Protocol, lead: bool) -> str:
    cancelled = record.res_status == "Cancelled"
    attributes = f'CreateDateTime="{_date_time(record.created_at)}"'
    if protocol.no_stay:
        if record.changed_at > record.created_at:
            attributes += f' LastModifyDateTime="{_date_time(record.changed_at)}"'
        if not cancelled:
            attributes += f' RoomStayReservation="{"false" if lead else "true"}"'
    return (
        f'<HotelReservation {attributes} ResStatus="{record.res_status}">'
        f'<UniqueID Type="{15 if cancelled else 14}" ID="{attribute(clean(record.id))}"/>'
    )


def _body(record: Record, hotel: Hotel, protocol: Protocol, lead: bool) -> str:
    """Everything after the UniqueID."""
    data = record.data
    if record.res_status != "Cancelled":
        stays = "" if lead else room_stays(record, protocol)
        return stays + guests(data, hotel) + global_info(record, hotel, protocol)
    try:
        stays = room_stays(record, protocol) if data.arrival else ""
        person = guests(data, hotel) if is_known(data) else ""
        return stays + person + global_info(record, hotel, protocol)
    except Undeliverable:
        return ""  # the UniqueID alone cancels; a cancellation is never held


def _date_time(us: int) -> str:
    """Microseconds since the epoch as xs:dateTime, whole seconds, UTC."""
    return datetime.fromtimestamp(us // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%S+00:00")
