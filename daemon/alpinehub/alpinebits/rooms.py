"""Categories of rooms that a push tells of, though they are none in the hotel's own inventory."""

from __future__ import annotations

import asyncio
import zlib
from io import BytesIO
from typing import TYPE_CHECKING

from alpinehub.alpinebits.document import tag
from alpinehub.alpinebits.outcome import Note

if TYPE_CHECKING:
    from alpinehub.models import Hotel
    from cordata import Row, Store, Tx

_UNKNOWN = Note(
    kind="advisory",
    text="some room categories are not in the inventory that this server has received",
    status="ALPINEBITS_SEND_INVENTORY",
)


async def unknown_rooms(store: Store, hotel: Hotel, told: frozenset[str]) -> tuple[Note, ...]:
    """Advice to send the inventory, where there is an older one; what was told counts anyway.

    Raises: StoreUnavailable.
    """
    if not told:
        return ()

    async def look(tx: Tx) -> Row | None:
        return await tx.fetch_one("document_get", hotel_id=hotel.id, kind="inventory")

    known = await store.read(look)
    codes = await asyncio.to_thread(_codes, known["body"]) if known is not None else told
    return (_UNKNOWN,) if codes and told - codes else ()


def _codes(inventory: bytes) -> frozenset[str]:
    """Of the categories in an inventory, packed."""
    from lxml import etree

    rooms = etree.iterparse(BytesIO(zlib.decompress(inventory)), tag=tag("GuestRoom"))
    return frozenset(str(room.get("Code", "")) for _, room in rooms)
