"""Inventory and Info: hotel software tells what the hotel is and has, and asks what we know of it.

They are two documents with one form; each replaces what was told before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from alpinehub.alpinebits.call import Answer, Call, read, respond
from alpinehub.alpinebits.document_store import (
    TRIES,
    DocumentChange,
    find_document,
    too_many_at_once,
    write_document,
)
from alpinehub.alpinebits.inbound import admit
from alpinehub.alpinebits.outcome import INVALID_HOTEL_CODE, Finding, Outcome, failed
from alpinehub.alpinebits.protocol import INFO_PUSH, INVENTORY_PUSH
from alpinehub.alpinebits.reader import Reader
from alpinehub.alpinebits.rules.content import CONTENT
from alpinehub.alpinebits.rules.inbound import InboundMessage
from alpinehub.alpinebits.serving import serve

if TYPE_CHECKING:
    from lxml.etree import _Element

Kind = Literal["inventory", "info"]

_ANSWER = "OTA_HotelDescriptiveInfoRS"
_NOTHING = {
    "inventory": b"<HotelDescriptiveContents><HotelDescriptiveContent><FacilityInfo><GuestRooms/>"
    b"</FacilityInfo></HotelDescriptiveContent></HotelDescriptiveContents>",
    "info": b"<HotelDescriptiveContents><HotelDescriptiveContent/></HotelDescriptiveContents>",
}


async def take_inventory(call: Call) -> Answer:
    """OTA_HotelDescriptiveContentNotif:Inventory."""
    return await _take(call, INVENTORY_PUSH, "inventory")


async def take_info(call: Call) -> Answer:
    """OTA_HotelDescriptiveContentNotif:Info."""
    return await _take(call, INFO_PUSH, "info")


async def tell_inventory(call: Call) -> Answer:
    """OTA_HotelDescriptiveInfo:Inventory."""
    return await _tell(call, "inventory")


async def tell_info(call: Call) -> Answer:
    """OTA_HotelDescriptiveInfo:Info."""
    return await _tell(call, "info")


async def _take(call: Call, action: str, kind: Kind) -> Answer:
    message = await read(call, CONTENT)
    response = "OTA_HotelDescriptiveContentNotifRS"
    update = await admit(call, action, response, message.as_(kind))
    if isinstance(update, bytes):
        return update
    change = DocumentChange(body=message.content)
    for _ in range(TRIES):
        before = await find_document(call.ctx.store, update.hotel.id, kind)
        if await write_document(update, kind, before, change):
            return update.respond(change.outcome)
    raise too_many_at_once()


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentRequest(InboundMessage):
    """OTA_HotelDescriptiveInfoRQ: of which hotel."""


def _read(root: _Element) -> ContentRequest:
    hotel = root[0][0]
    return ContentRequest(hotel_code=hotel.get("HotelCode"), hotel_name=hotel.get("HotelName"))


CONTENT_REQUEST = Reader(root="OTA_HotelDescriptiveInfoRQ", read=_read, type=ContentRequest)


async def _tell(call: Call, kind: Kind) -> Answer:
    asked = await read(call, CONTENT_REQUEST)
    hotel = call.account.hotel(asked.hotel_code, asked.hotel_name)
    if hotel is None:
        return respond(call, _ANSWER, failed(INVALID_HOTEL_CODE, "Invalid hotel code"))
    if not hotel.offers(kind):
        refused = InboundMessage(uses=frozenset({kind})).disabled_features(hotel)
        return respond(call, _ANSWER, Outcome(refused))
    known = (await find_document(call.ctx.store, hotel.id, kind)).body()
    if not known:
        text = f"no {kind} of this hotel has been received yet"
        finding = Finding(kind="advisory", text=text, status="ALPINEBITS_SEND_INVENTORY")
        return await serve(call, hotel, _ANSWER, _NOTHING[kind], outcome=Outcome((finding,)))
    content = b"<HotelDescriptiveContents>%b</HotelDescriptiveContents>" % known
    return await serve(call, hotel, _ANSWER, content)
