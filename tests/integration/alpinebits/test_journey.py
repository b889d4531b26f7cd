"""A booking from the website to the hotel: webhook in, AlpineBits out, through the real mounts."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.hub.material import BOOKING, PRICE, open_hub
from tests.integration.hub.software import acknowledge, waiting

from alpinehub.alpinebits.protocol import PROTOCOLS

pytestmark = pytest.mark.usefixtures("each_store")


@pytest.mark.parametrize("version", PROTOCOLS)
async def test_booking_reaches_the_hotel_in_each_state_until_it_is_acknowledged(
    tmp_path: Path, version: str
) -> None:
    async with open_hub(tmp_path) as hub:
        unique_id = (await hub.post(BOOKING)).id
        assert await waiting(hub, version) == [("Requested", "14", unique_id)]
        await acknowledge(hub, 14, unique_id)
        assert await waiting(hub, version) == []
        await hub.post(BOOKING)  # the same once more says nothing new
        assert await waiting(hub, version) == []
        await hub.post(BOOKING | PRICE)
        assert await waiting(hub, version) == [("Reserved", "14", unique_id)]
        await hub.post(BOOKING | PRICE | {"adults": 3})
        assert await waiting(hub, version) == [("Modify", "14", unique_id)]
        await hub.post(
            {"hotel_code": "DEMO", "status": "cancelled", "external_id": BOOKING["external_id"]}
        )
        for _ in range(2):  # before the cancellation was sent, and after
            await acknowledge(hub, 14, unique_id)  # late, of the modification
            assert await waiting(hub, version) == [("Cancelled", "15", unique_id)]
        await acknowledge(hub, 15, unique_id)
        assert await waiting(hub, version) == []
