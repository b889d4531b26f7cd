"""What is told of rooms that are in no inventory: it counts, and the inventory is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.alpinebits.hotel_data import (
    BASIC,
    entry,
    plan,
    push_content,
    push_plans,
    push_rooms,
    rate,
)
from tests.integration.alpinebits.hub import Hub, open_hub
from tests.integration.alpinebits.test_rateplans import codes
from tests.unit.alpinebits.free_rooms import LIMIT, count, status

from alpinehub.alpinebits.protocol import PROTOCOLS

pytestmark = pytest.mark.usefixtures("each_store")

TWICE = "periods of one room or category overlap"


async def push_free(hub: Hub, room: str, version: str, times: int = 1) -> str:
    """A complete set of one category."""
    told = f'InvTypeCode="{room}"'
    one = status(LIMIT.format(1), told) if version < "2020" else entry(told, inside=count(2, 1))
    return (await push_rooms(hub, *[one] * times, complete=True, version=version)).text


async def noted(hub: Hub) -> list[str]:
    rows = await hub.execute("SELECT outcome FROM inbound_message ORDER BY id")
    return [row["outcome"] for row in rows]


@pytest.mark.parametrize("version", PROTOCOLS)
async def test_room_that_the_inventory_lacks_is_taken_with_advice(
    tmp_path: Path, version: str
) -> None:
    advice = "" if version < "2018" else ' Status="ALPINEBITS_SEND_INVENTORY"'
    advice = f'<Success/><Warnings><Warning Type="11"{advice}>some room categories'
    async with open_hub(tmp_path) as hub:
        await push_content(hub, "Inventory", BASIC, version)
        assert (
            "<Success/></OTA" in (await push_plans(hub, plan("A", rate(8)), version=version)).text
        )
        other = plan("B", rate(8, room="Attic"))
        assert advice in (await push_plans(hub, other, version=version)).text
        assert await codes(hub) == ["A", "B"]
        assert "<Success/></OTA" in await push_free(hub, "DZ", version)
        assert advice in await push_free(hub, "Attic", version)
        assert await noted(hub) == ["success", "success", "advisory", "success", "advisory"]


async def test_nothing_is_said_of_rooms_where_no_inventory_is_known(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        assert "<Success/></OTA" in await push_free(hub, "Attic", "2024-10")
        await push_content(hub, "Inventory", "<FacilityInfo><GuestRooms/></FacilityInfo>")
        assert "<Success/></OTA" in await push_free(hub, "Attic", "2024-10")


async def test_advice_is_on_record_with_its_text(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        assert TWICE in await push_free(hub, "DZ", "2024-10", times=2)
        [row] = await hub.execute("SELECT outcome, problem FROM inbound_message")
        assert row["outcome"] == "advisory" and TWICE in row["problem"]
