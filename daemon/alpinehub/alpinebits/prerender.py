"""A new version is rendered as it will be fetched, so that what no poll can bring is known at once
and not at the next poll.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from alpinehub.alpinebits.call import Client
from alpinehub.alpinebits.delivery import note_undeliverable
from alpinehub.alpinebits.listing import Batch, tell_undeliverable
from alpinehub.alpinebits.protocol import PROTOCOLS
from alpinehub.directory import directory_of

if TYPE_CHECKING:
    from alpinehub.alpinebits.delivery import UndeliverableVersion
    from cordata import Context, Event, Row, Tx


async def prerender(ctx: Context, event: Event) -> Callable[[Tx], Awaitable[None]] | None:
    """What is to be done in the unit that notes the version; None: nothing is held.

    For accounts whose software has come already, in the protocol version in which it last came; for
    those to whom requests are brought, in that of the bringing.
    Whether what was rendered is valid is looked at when it is fetched: that it is not would be a
    mistake of ours. Raises: StoreUnavailable.
    """
    told = event.payload

    async def look(tx: Tx) -> list[Row]:
        return await tx.fetch_all(
            "listing_prerender", reservation_id=told["reservation_id"], version=told["version"]
        )

    rows = [row for row in await ctx.store.read(look) if row["protocol"] is not None]
    hotels = (await directory_of(ctx).current()).hotels.values() if rows else ()
    hotel = next((one for one in hotels if one.id == told["hotel_id"]), None)
    held: list[tuple[Client, list[UndeliverableVersion]]] = []
    for row in rows:
        protocol = PROTOCOLS.get(row["protocol"])
        if hotel is None or protocol is None:
            continue
        batch = Batch()
        batch.render(row, hotel, protocol)
        if batch.held:
            client = Client(account_id=row["account_id"], protocol=protocol, client_id="")
            held.append((client, batch.held))
            tell_undeliverable(ctx, hotel, protocol, batch.held)

    async def note(tx: Tx) -> None:
        for client, ones in held:
            await note_undeliverable(tx, client, ones)

    return note if held else None
