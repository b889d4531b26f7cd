"""Hotel data for the operator: what hotel software has sent about a hotel."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from datetime import date
from typing import Final

from alpinehub.alpinebits.actions.rate_plans import read_plans
from alpinehub.alpinebits.inbound import DocumentKind, read_document
from alpinehub.alpinebits.rules import room_counts
from alpinehub.hotels import require_hotel
from cordata import Store, Tx

#: The kinds of data, and the columns of their tables.
COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "freerooms": (
        "category", "room", "first", "last", "bookable", "out_of_order", "out_of_market",
    ),
    "inventory": ("xml",),
    "info": ("xml",),
    "rates": ("code", "xml"),
    "activities": ("context", "event_id", "xml"),
}  # fmt: skip
#: Columns of the table of inbound messages.
MESSAGE_COLUMNS = ("received_at", "sent_by", "action", "protocol", "outcome", "problem")
#: Shown in place of a category for a closing season of the whole hotel.
CLOSED = "closed"


async def overview(store: Store, code: str) -> list[dict[str, object]]:
    """One row for each stored document, rate plan and activity of a hotel. Raises: Unusable."""

    async def unit(tx: Tx) -> list[dict[str, object]]:
        hotel_id = await require_hotel(tx, code)
        return [dict(row) for row in await tx.fetch_all("document_list", hotel_id=hotel_id)]

    return await store.read(unit)


async def list_messages(store: Store, code: str, limit: int) -> list[dict[str, object]]:
    """The newest inbound messages about a hotel and how each was answered. Raises: Unusable."""

    async def unit(tx: Tx) -> list[dict[str, object]]:
        hotel_id = await require_hotel(tx, code)
        rows = await tx.fetch_all("inbound_messages", hotel_id=hotel_id, limit=limit)
        return [dict(row) for row in rows]

    return await store.read(unit)


async def read_data(store: Store, code: str, what: str) -> list[dict[str, object]]:
    """The rows of one kind of data, a key of COLUMNS. Raises: Unusable."""

    async def unit(tx: Tx) -> list[dict[str, object]]:
        hotel_id = await require_hotel(tx, code)
        if what == "rates":
            plans = await read_plans(tx, hotel_id)
            return [
                {"code": code, "xml": zlib.decompress(plan).decode()}
                for code, (_, plan) in sorted(plans.items())
            ]
        if what == "activities":
            rows = await tx.fetch_all("activity_all", hotel_id=hotel_id)
            return [_activity(dict(row)) for row in rows]
        if what == "freerooms":
            return list(_nights((await read_document(tx, hotel_id, "freerooms")).body()))
        kind: DocumentKind = "inventory" if what == "inventory" else "info"
        document = await read_document(tx, hotel_id, kind)
        return [{"xml": document.body().decode()}] if document.packed else []

    return await store.read(unit)


def _activity(row: dict[str, object]) -> dict[str, object]:
    body = row.pop("body")
    assert isinstance(body, bytes)
    return {**row, "xml": zlib.decompress(body).decode()}


def _nights(body: bytes) -> Iterator[dict[str, object]]:
    if not body:
        return
    rooms = room_counts.decode(body)
    periods_of = [((CLOSED, ""), rooms.closings), *sorted(rooms.entries.items())]
    for (category, room), some in periods_of:
        for one in some:
            yield {
                "category": category,
                "room": room,
                "first": date.fromordinal(one.first).isoformat(),
                "last": date.fromordinal(one.last).isoformat(),
                **one.counts._asdict(),
            }
