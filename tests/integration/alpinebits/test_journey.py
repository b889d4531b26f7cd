"""A booking from the website to the hotel: webhook in, AlpineBits out, through the real mounts."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest
from tests.integration.alpinebits import material
from tests.integration.alpinebits.hub import notif_report_rq, read_rq
from tests.integration.hub.material import BOOKING, PRICE, Answer, Hub, open_hub

from alpinehub.accounts import add_account, grant, revoke, set_account_disabled, set_password
from alpinehub.alpinebits.protocol import PROTOCOLS

pytestmark = pytest.mark.usefixtures("each_store")
READ, ACKNOWLEDGE = "OTA_Read:GuestRequests", "OTA_NotifReport:GuestRequests"


async def send(
    hub: Hub, action: str, document: str, version: str, user: str = "demo", password: str = "demo"
) -> Answer:
    parts = {"action": action, "request": document}
    body = "".join(
        f'--B\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in parts.items()
    )
    headers = {
        "authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}",
        "content-type": "multipart/form-data; boundary=B",
        "x-alpinebits-clientprotocolversion": version,
    }
    encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
    return await hub.call("POST", "/api/alpinebits", encoded, f"{body}--B--\r\n".encode(), chunks=3)


async def waiting(
    hub: Hub, version: str = "2024-10", user: str = "demo"
) -> list[tuple[str, str, str]]:
    """(ResStatus, UniqueID type, ID) of what is delivered."""
    answer = await send(hub, READ, read_rq("DEMO"), version, user)
    assert answer.status == 200
    assert material.problems(answer.body, version) == []
    pattern = r'ResStatus="(\w+)"[^>]*><UniqueID Type="(\d+)" ID="(\w+)"'
    return re.findall(pattern, answer.body.decode())


async def acknowledge(hub: Hub, kind: int, unique_id: str, user: str = "demo") -> None:
    document = notif_report_rq(((kind, unique_id),), {})
    answer = await send(hub, ACKNOWLEDGE, document, "2024-10", user)
    assert b"<Success/>" in answer.body


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
        await acknowledge(hub, 14, unique_id)  # late, of the modification
        assert await waiting(hub, version) == [("Cancelled", "15", unique_id)]
        await acknowledge(hub, 15, unique_id)
        assert await waiting(hub, version) == []


async def test_login_decides_who_reads_what(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        store = hub.ctx.store
        unique_id = (await hub.post(BOOKING)).id
        await add_account(store, "late", "demo", [])
        await forget(hub)
        assert (await send(hub, READ, read_rq("DEMO"), "2024-10", "late")).status == 200
        assert await waiting_error(hub, "late")
        await grant(store, "late", "DEMO")
        await forget(hub)
        assert await waiting(hub, user="late") == [("Requested", "14", unique_id)]
        await revoke(store, "late", "DEMO")
        await forget(hub)
        assert await waiting_error(hub, "late")
        await acknowledge(hub, 14, unique_id, "late")  # no longer his to acknowledge
        assert await hub.one("SELECT count(*) FROM delivery WHERE acked_at IS NOT NULL") == 0
        await set_password(store, "demo", "new")
        await set_account_disabled(store, "late", True)
        await forget(hub)
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


async def forget(hub: Hub) -> None:
    """Let the directory ask the store again, as it does after a second."""
    from alpinehub.directory import directory_of

    directory_of(hub.ctx)._trusted_until = 0.0
