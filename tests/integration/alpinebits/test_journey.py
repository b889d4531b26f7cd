"""A booking from the website to the hotel: webhook in, AlpineBits out, through the real mounts."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.alpinebits.hub import read_rq
from tests.integration.hub.material import BOOKING, PRICE, Hub, forget_directory, open_hub
from tests.integration.hub.software import READ, acknowledge, send, waiting

from alpinehub.accounts import add_account, grant, revoke, set_account_disabled, set_password
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


async def test_login_decides_who_reads_what(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        store = hub.ctx.store
        unique_id = (await hub.post(BOOKING)).id
        await add_account(store, "late", "demo", [])
        forget_directory(hub.ctx)
        assert (await send(hub, READ, read_rq("DEMO"), "2024-10", "late")).status == 200
        assert await waiting_error(hub, "late")
        await grant(store, "late", "DEMO")
        forget_directory(hub.ctx)
        assert await waiting(hub, user="late") == [("Requested", "14", unique_id)]
        await revoke(store, "late", "DEMO")
        forget_directory(hub.ctx)
        assert await waiting_error(hub, "late")
        await acknowledge(hub, 14, unique_id, "late")  # no longer his to acknowledge
        assert await hub.one("SELECT count(*) FROM delivery WHERE acked_at IS NOT NULL") == 0
        await set_password(store, "demo", "new")
        await set_account_disabled(store, "late", True)
        forget_directory(hub.ctx)
        for user, password, status in (
            ("demo", "demo", 401),
            ("demo", "new", 200),
            ("late", "demo", 401),
        ):
            answer = await send(hub, READ, read_rq("DEMO"), "2024-10", user, password)
            assert answer.status == status


async def waiting_error(hub: Hub, user: str) -> bool:
    answer = await send(hub, READ, read_rq("DEMO"), "2024-10", user)
    return b'Code="392"' in answer.body
