"""A guest request as hotel software would get it."""

from __future__ import annotations

from alpinehub.alpinebits.guest import Undeliverable, find_invalid, render, response
from alpinehub.alpinebits.guest_requests import record_of
from alpinehub.alpinebits.protocol import Protocol
from alpinehub.directory import joined_hotel
from alpinehub.hotels import Unusable
from alpinehub.requests.listing import unknown
from cordata import Store


async def render_request(store: Store, request_id: str, protocol: Protocol) -> bytes:
    """The response with it alone, which is sent to nobody. Raises: Unusable, StoreUnavailable."""
    row = await store.read(lambda tx: tx.fetch_one("requests_xml", id=request_id))
    if row is None:
        raise unknown(request_id)
    try:
        made = render(record_of(row), joined_hotel(row), protocol)
    except Undeliverable as reason:
        text = f"AlpineBits {protocol.name} cannot carry it: {reason} ({reason.code.value})"
        raise Unusable(text) from None
    if invalid := find_invalid([made], protocol):
        raise Unusable(f"AlpineBits {protocol.name} cannot carry it: {invalid[0]} (schema)")
    return response([made])
