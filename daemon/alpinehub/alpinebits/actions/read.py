"""OTA_Read:GuestRequests: hotel software fetches the guest requests that wait for it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from alpinehub.alpinebits.call import Call, ResponseBody, read
from alpinehub.alpinebits.guest import RESPONSE_END, RESPONSE_START, response
from alpinehub.alpinebits.guest_requests import Cursor, Page, send_page
from alpinehub.alpinebits.moment import moment_us
from alpinehub.alpinebits.reader import Reader
from alpinehub.alpinebits.rules.inbound_message import InboundMessage
from alpinehub.models import Hotel

if TYPE_CHECKING:
    from lxml.etree import _Element


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest(InboundMessage):
    """OTA_ReadRQ: the hotel whose guest requests are requested."""

    #: xs:dateTime as written; None: all that are not acknowledged.
    start: str | None = None


def _read(root: _Element) -> ReadRequest:
    hotel = root[0][0]
    criteria = hotel[0] if len(hotel) else None
    return ReadRequest(
        hotel_code=hotel.get("HotelCode"),
        hotel_name=hotel.get("HotelName"),
        start=criteria.get("Start") if criteria is not None else None,
    )


READ_REQUEST = Reader(root="OTA_ReadRQ", read=_read)


async def read_requests(call: Call) -> ResponseBody:
    """The waiting guest requests, or all that were created since a time."""
    wanted = await read(call, READ_REQUEST)
    hotel = call.require_hotel(wanted)
    since_us = moment_us(wanted.start, hotel.zone) if wanted.start is not None else None
    page = await send_page(call.ctx, call.recipient, hotel, Cursor(since_us=since_us))
    # A single page is sent with a Content-Length, which some old clients prefer.
    if page.next is None:
        return response(one.xml for one in page.versions)
    # If the store fails here, the answer is a 503; later it can only end early.
    second = await send_page(call.ctx, call.recipient, hotel, page.next)
    return _parts(call, hotel, page, second)


async def _parts(call: Call, hotel: Hotel, first: Page, page: Page) -> AsyncGenerator[bytes, None]:
    """The response in parts, so that at most two pages are in memory."""
    yield RESPONSE_START + b"".join(one.xml for one in first.versions)
    del first
    while True:
        if page.versions:
            yield b"".join(one.xml for one in page.versions)
        if page.next is None:
            break
        page = await send_page(call.ctx, call.recipient, hotel, page.next)
    yield RESPONSE_END
