"""The hub over some hours, as its workers and its primary make them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
from tests.integration.alpinebits.hub import notif_report_rq, read_rq, reservations
from tests.integration.hub.material import BOOKING
from tests.raw import raw

from alpinehub import demo
from alpinehub.app import app
from cordata import to_us
from cordata.testing import Harness, open_app

NOW = datetime(2026, 7, 1, 6, tzinfo=UTC)


@asynccontextmanager
async def demo_hub(directory: Path) -> AsyncIterator[Harness]:
    config = {"alpinehub": {"demo": True}}
    async with open_app(app, now=NOW, config=config, directory=directory) as hub:
        yield hub


async def book(hub: Harness, number: int = 1, **fields: object) -> str:
    answer = await hub.request(
        "POST",
        "/api/webhook/generic",
        headers={"X-Webhook-Secret": demo.SECRET},
        json={**BOOKING, "external_id": f"n-{number}", **fields},
    )
    assert answer.status == 200, answer.text
    return str(answer.json()["id"])


async def ask(hub: Harness, action: str, request: str) -> bytes:
    """One AlpineBits request of the hotel's software; the answer's document."""
    transport = httpx.ASGITransport(hub.asgi)
    async with httpx.AsyncClient(transport=transport, base_url="http://hub") as client:
        answer = await client.post(
            "/api/alpinebits",
            files={"action": (None, action), "request": (None, request)},
            auth=(demo.USER, demo.PASSWORD),
            headers={"X-AlpineBits-ClientProtocolVersion": "2024-10"},
        )
    return answer.content


async def poll(hub: Harness) -> list[str]:
    """What the hotel's software does every few minutes; the ids that it gets."""
    answer = await ask(hub, "OTA_Read:GuestRequests", read_rq(demo.HOTEL))
    return [unique_id for _, unique_id, _ in reservations(answer)]


async def report(
    hub: Harness, *ids: tuple[int, str], rejected: Mapping[str, str] | None = None
) -> None:
    """What it says of what it got: (UniqueID's type, id) of each that it took."""
    request = notif_report_rq(ids, rejected or {})
    answer = await ask(hub, "OTA_NotifReport:GuestRequests", request)
    assert b"<Success/>" in answer, answer


async def history_of(hub: Harness, reservation_id: str) -> list[tuple[int, str]]:
    """(version, event) in the history of a reservation, sorted: types are handled in no order."""
    rows = await hub.ctx.store.read(lambda tx: raw(tx, "SELECT * FROM reservation_history"))
    own = [row for row in rows if row["reservation_id"] == reservation_id]
    return sorted((row["version"], row["event"]) for row in own)


async def test_request_is_received_delivered_and_in_the_history(tmp_path: Path) -> None:
    async with demo_hub(tmp_path) as hub:
        reservation_id = await book(hub)
        assert await hub.drain() == 0  # nothing is left to be done
        hub.advance(minutes=5)
        assert await poll(hub) == [reservation_id]
        hub.advance(minutes=5)
        assert await poll(hub) == [reservation_id]  # until it is acknowledged
        [received] = await hub.outbox()
        assert (received.type, received.created_at) == ("reservation.received", NOW)
        assert received.key == reservation_id
        rows = await hub.ctx.store.read(
            lambda tx: raw(tx, "SELECT event, at FROM reservation_history ORDER BY at, id")
        )
        later = to_us(NOW + timedelta(minutes=5))
        assert [tuple(dict(row).values()) for row in rows] == [
            *(("received", to_us(NOW)), ("delivered", later)),
        ]


async def test_each_event_of_a_reservation_is_published_and_in_its_history_once(
    tmp_path: Path,
) -> None:
    async with demo_hub(tmp_path) as hub:
        one, other = await book(hub, 1), await book(hub, 2)
        assert sorted(await poll(hub)) == sorted([one, other])
        await report(hub, (14, one), rejected={other: "no room"})
        assert await book(hub, 1, adults=4) == one
        assert await book(hub, 2, status="cancelled") == other
        await poll(hub)
        await report(hub, (14, one), (15, other))  # 15: a cancellation
        assert await history_of(hub, one) == [
            *((1, "acknowledged"), (1, "delivered"), (1, "received")),
            *((2, "acknowledged"), (2, "delivered"), (2, "modified")),
        ]
        assert await history_of(hub, other) == [
            *((1, "delivered"), (1, "received"), (1, "rejected")),
            *((2, "acknowledged"), (2, "cancelled"), (2, "delivered")),
        ]


async def test_hourly_counts_are_of_the_hour_in_which_a_request_came(tmp_path: Path) -> None:
    async with demo_hub(tmp_path) as hub:
        for _ in range(2):
            await book(hub, 1)
        hub.advance(hours=1)
        for _ in range(3):
            await book(hub, 2)
        hub.advance(hours=5)
        await hub.run_periodic("fold_counts")
        columns = "hour_at, kind, submissions"
        rows = await hub.ctx.store.read(
            lambda tx: raw(tx, f"SELECT {columns} FROM hotel_hour ORDER BY hour_at")
        )
        later = NOW + timedelta(hours=1)
        assert [tuple(dict(row).values()) for row in rows] == [
            (to_us(NOW), "duplicate", 1),
            (to_us(later), "duplicate", 2),
        ]
