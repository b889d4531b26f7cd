"""Inventory and Info: hotel software tells what the hotel is and has, and asks what we know of it.

They are two documents with one form; each replaces what was told before.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from alpinehub.alpinebits.call import Answer, Call, read, respond
from alpinehub.alpinebits.document_store import Change, Document, change_document, read_document
from alpinehub.alpinebits.inbound import Push, take
from alpinehub.alpinebits.outcome import INVALID_HOTEL_CODE, Note, Outcome, failed
from alpinehub.alpinebits.protocol import INFO_PUSH, INVENTORY_PUSH
from alpinehub.alpinebits.reader import Reader
from alpinehub.alpinebits.rules.content import CONTENT
from alpinehub.alpinebits.rules.inbound import Told
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
    told = await read(call, CONTENT)

    def change(old: Document) -> Change:
        return Change(body=told.content)

    async def store(push: Push) -> Outcome:
        return await change_document(push, kind, change)

    return await take(call, action, "OTA_HotelDescriptiveContentNotifRS", told.as_(kind), store)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked(Told):
    """OTA_HotelDescriptiveInfoRQ: of which hotel."""


def _read(root: _Element) -> Asked:
    hotel = root[0][0]
    return Asked(hotel_code=hotel.get("HotelCode"), hotel_name=hotel.get("HotelName"))


ASKED = Reader(root="OTA_HotelDescriptiveInfoRQ", read=_read, type=Asked)


async def _tell(call: Call, kind: Kind) -> Answer:
    asked = await read(call, ASKED)
    hotel = call.account.hotel(asked.hotel_code, asked.hotel_name)
    if hotel is None:
        return respond(call, _ANSWER, failed(INVALID_HOTEL_CODE, "Invalid hotel code"))
    if not hotel.offers(kind):
        refused = Told(uses=frozenset({kind})).refused(hotel)
        return respond(call, _ANSWER, Outcome(refused))
    known = await call.ctx.store.read(partial(read_document, hotel_id=hotel.id, kind=kind))
    if not known.body:
        text = f"no {kind} of this hotel has been received yet"
        note = Note(kind="advisory", text=text, status="ALPINEBITS_SEND_INVENTORY")
        return await serve(call, hotel, _ANSWER, _NOTHING[kind], verdict=Outcome((note,)))
    content = b"<HotelDescriptiveContents>%b</HotelDescriptiveContents>" % known.body
    return await serve(call, hotel, _ANSWER, content)
