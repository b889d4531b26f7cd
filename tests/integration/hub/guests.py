"""Guests who write to a hub: what they say of themselves, and who they are taken for."""

from __future__ import annotations

from datetime import date
from itertools import count
from typing import Any

from tests.integration.hub.material import Hub

from alpinehub.customers import duplicates
from alpinehub.directory import directory_of
from alpinehub.intake import NormalisedSubmission, store_submission
from alpinehub.reservations import ReservationData

_numbers = count(1)
STAY: dict[str, Any] = {
    "status": "request",
    "arrival": date(2027, 2, 1),
    "departure": date(2027, 2, 8),
    "adults": 2,
}


async def write(
    hub: Hub, *, number: str | None = None, hotel: str = "DEMO", body: bytes = b"", **told: Any
) -> str:
    """Someone writes to a hotel; the id of the reservation. `number`: the source's own."""
    snapshot = await directory_of(hub.ctx).snapshot()
    source = snapshot.sources_by_hotel[hotel][0]
    submission = NormalisedSubmission(
        source_id=source.id,
        hotel=source.hotel,
        data=ReservationData(**{**STAY, **told}),
        external_id=number or f"guest-{next(_numbers)}",
        body=body,
        headers="{}",
        request_id="r-1",
    )
    return (
        await store_submission(hub.ctx.store, submission, now_us=hub.ctx.now_us())
    ).reservation_id


async def customer_of(hub: Hub, reservation_id: str) -> int:
    """Whose it is."""
    found = await hub.one(f"SELECT customer_id FROM reservation WHERE id = '{reservation_id}'")
    return int(found)


async def settle(hub: Hub) -> None:
    """What the primary does a minute later, until nobody is due."""
    hub.harness.advance(seconds=duplicates.SETTLED_S)
    while await duplicates.merge_duplicates(hub.ctx.store):
        pass
