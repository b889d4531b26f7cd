"""Guests who write to a hub: what they say of themselves, and who they are taken for."""

from __future__ import annotations

from datetime import date
from itertools import count
from typing import Any

from tests.integration.hub.material import Hub

from alpinehub.customers import duplicates
from alpinehub.directory import directory_of
from alpinehub.intake import NormalisedSubmission, StoreResult, store_submission
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
    data = ReservationData(**{**STAY, **told})
    number = number or f"guest-{next(_numbers)}"
    made = await submission(hub, data, hotel=hotel, external_id=number, body=body)
    return (await store(hub, made)).reservation_id


async def submission(
    hub: Hub, data: ReservationData, *, hotel: str = "DEMO", **more: Any
) -> NormalisedSubmission:
    """What the first source of a hotel says, checked; `more` are other fields than the usual."""
    source = (await directory_of(hub.ctx).snapshot()).sources_by_hotel[hotel][0]
    usual = {"external_id": "n-1", "body": b"{}", "headers": "{}", "request_id": "r-1"}
    return NormalisedSubmission(
        source_id=source.id, hotel=source.hotel, data=data, **(usual | more)
    )


async def store(hub: Hub, made: NormalisedSubmission) -> StoreResult:
    """What becomes of a submission."""
    return await store_submission(hub.ctx.store, made, now_us=hub.ctx.now_us())


async def leave(hub: Hub, state: str, body: bytes, hotel: str = "DEMO") -> None:
    """Store a submission that became no request."""
    sql = (
        "INSERT INTO inbox (source_id, received_at, headers, body, state, error, request_id)"
        " SELECT s.id, ?, '{\"x\": 1}', ?, ?, 'missing:arrival', 'r' FROM source s"
        " JOIN hotel h ON h.id = s.hotel_id WHERE h.code = ?"
    )
    await hub.execute(sql, hub.ctx.now_us(), body, state, hotel)


async def customer_of(hub: Hub, reservation_id: str) -> int:
    """Whose it is."""
    found = await hub.one(f"SELECT customer_id FROM reservation WHERE id = '{reservation_id}'")
    return int(found)


async def settle(hub: Hub) -> None:
    """What the primary does a minute later, until nobody is due."""
    hub.harness.advance(seconds=duplicates.SETTLED_S)
    while await duplicates.merge_duplicates(hub.ctx.store):
        pass
