"""The hotel software of a hub: what it is given, and what it says to that."""

from __future__ import annotations

import base64
import re

from tests.integration.alpinebits import material
from tests.integration.alpinebits.hub import notif_report_rq, read_rq
from tests.integration.hub.material import Answer, Hub

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
    hub: Hub, version: str = "2024-10", user: str = "demo", start: str = ""
) -> list[tuple[str, str, str]]:
    """(ResStatus, UniqueID type, ID) of what is delivered."""
    answer = await send(hub, READ, read_rq("DEMO", start), version, user)
    assert answer.status == 200
    assert material.problems(answer.body, version) == []
    pattern = r'ResStatus="(\w+)"[^>]*><UniqueID Type="(\d+)" ID="(\w+)"'
    return re.findall(pattern, answer.body.decode())


async def acknowledge(hub: Hub, kind: int, unique_id: str, user: str = "demo") -> None:
    document = notif_report_rq(((kind, unique_id),), {})
    answer = await send(hub, ACKNOWLEDGE, document, "2024-10", user)
    assert b"<Success/>" in answer.body


async def take(hub: Hub, user: str = "demo") -> list[str]:
    """Poll and acknowledge: the ResStatus of each that was given."""
    given = await waiting(hub, user=user)
    for _, kind, unique_id in given:
        await acknowledge(hub, int(kind), unique_id, user)
    return [status for status, _, _ in given]
