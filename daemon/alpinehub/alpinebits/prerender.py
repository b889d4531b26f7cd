"""Pre-rendering: a new version is rendered as each account will fetch it, so that what cannot be
delivered is known at once and not at the next poll.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from alpinehub.alpinebits.call import Client
from alpinehub.alpinebits.listing import Batch, tell_undeliverable
from alpinehub.alpinebits.protocol import PROTOCOLS
from alpinehub.directory import directory_of

if TYPE_CHECKING:
    from alpinehub.alpinebits.delivery import UndeliverableVersion
    from cordata import Context, Event, Row, Tx


async def find_undeliverable(
    ctx: Context, event: Event
) -> list[tuple[Client, list[UndeliverableVersion]]]:
    """Which accounts cannot be given the version of an event, and why; each is an alert.

    An account counts in the protocol version in which its software last came, or in that of its
    push target. Whether the XML is valid is checked when it is fetched: if it is not, that is a bug
    of ours. Raises: StoreUnavailable.
    """
    version = event.payload

    async def look(tx: Tx) -> list[Row]:
        return await tx.fetch_all(
            "listing_prerender",
            reservation_id=version["reservation_id"],
            version=version["version"],
        )

    rows = [row for row in await ctx.store.read(look) if row["protocol"] is not None]
    hotels = (await directory_of(ctx).current()).hotels.values() if rows else ()
    hotel = next((one for one in hotels if one.id == version["hotel_id"]), None)
    found: list[tuple[Client, list[UndeliverableVersion]]] = []
    for row in rows:
        protocol = PROTOCOLS.get(row["protocol"])
        if hotel is None or protocol is None:
            continue
        batch = Batch()
        batch.render(row, hotel, protocol)
        if batch.held:
            client = Client(account_id=row["account_id"], protocol=protocol, client_id="")
            found.append((client, batch.held))
            tell_undeliverable(ctx, hotel, protocol, batch.held)
    return found
