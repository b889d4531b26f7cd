"""Inventory and Info: hotel software pushes the content of a hotel, and pulls what is stored.

They are two documents of one form; each push replaces the document.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from alpinehub.alpinebits.call import Call, ResponseBody, read
from alpinehub.alpinebits.inbound import Update, find_document, receive, write_document
from alpinehub.alpinebits.outcome import Finding, Outcome
from alpinehub.alpinebits.pull import respond_with
from alpinehub.alpinebits.reader import Reader
from alpinehub.alpinebits.rules.content import INFO, INVENTORY
from alpinehub.alpinebits.rules.inbound_message import InboundMessage

if TYPE_CHECKING:
    from lxml.etree import _Element

ContentKind = Literal["inventory", "info"]

_READERS = {"inventory": INVENTORY, "info": INFO}
_EMPTY = {
    "inventory": b"<HotelDescriptiveContents><HotelDescriptiveContent><FacilityInfo><GuestRooms/>"
    b"</FacilityInfo></HotelDescriptiveContent></HotelDescriptiveContents>",
    "info": b"<HotelDescriptiveContents><HotelDescriptiveContent/></HotelDescriptiveContents>",
}


async def receive_content(call: Call, *, kind: ContentKind) -> ResponseBody:
    """OTA_HotelDescriptiveContentNotif:Inventory or :Info."""
    message = await read(call, _READERS[kind])
    return await receive(call, message, partial(_store, kind=kind, content=message.content))


async def _store(update: Update, kind: ContentKind, content: bytes) -> Outcome:
    await write_document(update, kind, content, Outcome())
    return Outcome()


def _read(root: _Element) -> InboundMessage:
    """The hotel whose content is requested."""
    hotel = root[0][0]
    return InboundMessage(hotel_code=hotel.get("HotelCode"), hotel_name=hotel.get("HotelName"))


CONTENT_REQUEST = Reader(root="OTA_HotelDescriptiveInfoRQ", read=_read)


async def send_content(call: Call, *, kind: ContentKind) -> ResponseBody:
    """OTA_HotelDescriptiveInfo:Inventory or :Info."""
    wanted = await read(call, CONTENT_REQUEST)
    hotel = call.require_hotel(wanted)
    replace(wanted, uses=frozenset({kind})).require_features(hotel)
    known = (await find_document(call.ctx.store, hotel.id, kind)).body()
    if not known:
        text = f"no {kind} of this hotel has been received yet"
        finding = Finding(kind="advisory", text=text, status="ALPINEBITS_SEND_INVENTORY")
        return await respond_with(call, hotel, _EMPTY[kind], outcome=Outcome((finding,)))
    content = b"<HotelDescriptiveContents>%b</HotelDescriptiveContents>" % known
    return await respond_with(call, hotel, content)
