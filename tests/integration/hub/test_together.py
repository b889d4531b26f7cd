"""What meets at the same rows at once, each from a process of its own: nothing is lost or doubled.

PostgreSQL lets it meet; on SQLite one comes after the other.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.integration.hub.material import BOOKING, Hub, open_hub
from tests.raw import raw, until_blocked

from alpinehub.accounts import add_account, grant, revoke
from alpinehub.alpinebits import guest_requests
from alpinehub.alpinebits.call import Recipient
from alpinehub.alpinebits.guest_requests import Cursor
from alpinehub.alpinebits.protocol import PROTOCOLS
from alpinehub.hotels import HotelChange, Unusable, change_hotel
from alpinehub.models import Hotel
from alpinehub.sources import add_source, set_options
from cordata import Tx

pytestmark = pytest.mark.usefixtures("each_store")
only_postgres = pytest.mark.parametrize("each_store", ["postgres"], indirect=True)

#: Newest versions without a delivery that waits for each user of their hotel who has not taken
#: them, and deliveries that wait though they are not of the newest version.
_MISSING = """SELECT r.id FROM reservation r JOIN account_hotel uh ON uh.hotel_id = r.hotel_id
    WHERE NOT EXISTS (SELECT 1 FROM delivery d WHERE d.reservation_id = r.id
        AND d.account_id = uh.account_id AND d.version = r.version
        AND (d.waiting = 1 OR d.acked_at IS NOT NULL))"""
_STALE = """SELECT d.reservation_id FROM delivery d JOIN reservation r ON r.id = d.reservation_id
    WHERE d.waiting = 1 AND (d.version <> r.version OR d.acked_at IS NOT NULL)"""


async def check(hub: Hub) -> None:
    assert await hub.rows(_MISSING) == []
    assert await hub.rows(_STALE) == []


async def test_two_workers_find_one_customer_when_the_same_guest_writes_at_once(
    tmp_path: Path,
) -> None:
    async with open_hub(tmp_path) as hub, open_hub(tmp_path, seed=False) as other:
        by_phone = {**BOOKING, "email": None, "phone": "+39 0471 999999"}

        async def post(number: int, payload: dict[str, Any]) -> None:
            worker = (hub, other)[number % 2]
            answer = await worker.post({**payload, "external_id": f"n-{number}"})
            assert answer.status == 200

        for first, payload in ((0, BOOKING), (20, by_phone)):
            await asyncio.gather(*(post(number, payload) for number in range(first, first + 20)))
        guests = await hub.rows("SELECT email, phone FROM customer ORDER BY id")
        assert guests == [
            {"email": "eva@example.com", "phone": "+393331234567"},
            {"email": None, "phone": "+390471999999"},
        ]
        await check(hub)


async def test_versions_have_no_gap_when_two_workers_change_one_reservation(
    tmp_path: Path,
) -> None:
    async with open_hub(tmp_path) as hub, open_hub(tmp_path, seed=False) as other:
        await hub.post(BOOKING)

        async def change(number: int) -> int:
            worker = (hub, other)[number % 2]
            return (await worker.post({**BOOKING, "message": f"change {number}"})).status

        for start in range(0, 12, 6):
            assert set(await asyncio.gather(*map(change, range(start, start + 6)))) == {200}
        versions = await hub.rows("SELECT version FROM reservation_version ORDER BY id")
        assert [row["version"] for row in versions] == list(range(1, 14))
        await check(hub)


async def test_grant_misses_nothing_when_webhooks_come_at_the_same_time(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub, open_hub(tmp_path, seed=False) as other:
        await add_account(hub.ctx.store, "late", "late", [])

        async def post(number: int) -> None:
            payload = {**BOOKING, "external_id": f"n-{number}", "email": f"{number}@example.com"}
            assert (await other.post(payload)).status == 200
            assert (await other.post({**payload, "adults": 3})).status == 200

        async def change_rights() -> None:
            for _ in range(5):
                await grant(hub.ctx.store, "late", "DEMO")
                await revoke(hub.ctx.store, "late", "DEMO")
            await grant(hub.ctx.store, "late", "DEMO")

        await asyncio.gather(change_rights(), *map(post, range(30)))
        await check(hub)


async def change(tx: Tx, reservation_id: str) -> None:
    """What the intake does first to make version 2."""
    (row,) = await raw(tx, "SELECT customer_id FROM reservation WHERE id = ?", (reservation_id,))
    await tx.execute(
        "update_reservation",
        id=reservation_id,
        version=2,
        status="request",
        customer_id=row["customer_id"],
        ends_on=None,
        now=tx.now_us,
    )


async def note(tx: Tx, reservation_id: str) -> None:
    """What it does then."""
    await raw(
        tx,
        "INSERT INTO inbox (source_id, external_id, received_at, headers, body, state,"
        " reservation_id, request_id) VALUES (1, 'n-1', 1, '{}', ?, 'mapped', ?, '')",
        (b"", reservation_id),
    )


async def fan_out(tx: Tx, reservation_id: str) -> None:
    """And at last."""
    await tx.execute("end_waiting", reservation_id=reservation_id)
    await tx.execute(
        "fan_out", reservation_id=reservation_id, version=2, hotel_id=1, unique_id_type=14
    )


@only_postgres
@pytest.mark.parametrize("acknowledged", [False, True])
async def test_granted_account_gets_the_version_that_is_being_made(
    tmp_path: Path, acknowledged: bool
) -> None:
    """Whether or not the one before was open to him, and whichever of the two is first."""
    async with open_hub(tmp_path) as hub, open_hub(tmp_path, seed=False) as other:
        reservation_id = (await hub.post(BOOKING)).id
        if acknowledged:
            await hub.execute("UPDATE delivery SET acked_at = 1, waiting = 0")
        await add_account(hub.ctx.store, "late", "late", [])
        async with asyncio.TaskGroup() as group:
            async with other.ctx.store.transaction() as tx:
                await change(tx, reservation_id)
                await note(tx, reservation_id)
                group.create_task(grant(hub.ctx.store, "late", "DEMO"))
                await until_blocked(other.ctx.store)
                await fan_out(tx, reservation_id)
        await check(hub)


@only_postgres
async def test_version_that_is_being_made_is_for_an_account_granted_meanwhile(
    tmp_path: Path,
) -> None:
    async with open_hub(tmp_path) as hub, open_hub(tmp_path, seed=False) as other:
        reservation_id = (await hub.post(BOOKING)).id
        await add_account(hub.ctx.store, "late", "late", [])
        async with other.ctx.store.transaction() as tx:
            await change(tx, reservation_id)
            await grant(hub.ctx.store, "late", "DEMO")
            await note(tx, reservation_id)
            await fan_out(tx, reservation_id)
        await check(hub)


@only_postgres
async def test_only_the_newest_version_waits_when_an_older_one_is_sent_meanwhile(
    tmp_path: Path,
) -> None:
    """By a user who asks for the past: no delivery of his is there to be ended."""
    async with open_hub(tmp_path) as hub, open_hub(tmp_path, seed=False) as other:
        reservation_id = (await hub.post(BOOKING)).id
        await add_account(hub.ctx.store, "late", "late", ["DEMO"])
        await hub.ctx.store.run(forget_deliveries)

        async def record(tx: Tx) -> None:
            sent = json.dumps([[reservation_id, 1, 14]])
            await tx.execute("delivery_add", account_id=2, sent=sent)

        async with asyncio.TaskGroup() as group:
            async with other.ctx.store.transaction() as tx:
                await change(tx, reservation_id)
                await fan_out(tx, reservation_id)
                group.create_task(hub.ctx.store.run(record))
                await until_blocked(other.ctx.store)
        await check(hub)


async def test_version_that_was_replaced_before_it_is_recorded_does_not_wait(
    tmp_path: Path,
) -> None:
    async with open_hub(tmp_path) as hub:
        reservation_id = (await hub.post(BOOKING)).id
        await add_account(hub.ctx.store, "late", "late", ["DEMO"])
        await hub.post({**BOOKING, "adults": 3})
        await hub.ctx.store.run(forget_deliveries)
        sent = json.dumps([[reservation_id, number, 14] for number in (1, 2)])
        add = {"account_id": 2, "sent": sent}
        await hub.ctx.store.run(lambda tx: tx.execute("delivery_add", **add))
        rows = await hub.rows("SELECT version, waiting FROM delivery WHERE account_id = 2")
        assert sorted((row["version"], row["waiting"]) for row in rows) == [(1, 0), (2, 1)]


@pytest.mark.parametrize("known", [True, False], ids=["has rows", "has no rows yet"])
async def test_one_delivery_is_told_when_an_account_polls_twice_at_once(
    tmp_path: Path, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guest_requests, "PAGE", 3)
    async with open_hub(tmp_path) as hub, open_hub(tmp_path, seed=False) as other:
        for number in range(8):
            await hub.post({**BOOKING, "external_id": f"n-{number}"})
        await add_account(hub.ctx.store, "late", "late", ["DEMO"])
        if not known:
            await hub.ctx.store.run(forget_deliveries)
        hotel = Hotel(
            id=1, code="DEMO", name="Demo", time_zone="Europe/Rome", language="de", region="IT"
        )
        recipient = Recipient(account_id=2, protocol=PROTOCOLS["2024-10"], client_id="")

        async def poll(at: Hub) -> None:
            cursor: Cursor | None = Cursor(since_us=0)
            while cursor is not None:
                cursor = (await guest_requests.send_page(at.ctx, recipient, hotel, cursor)).next

        await asyncio.gather(poll(hub), poll(other))
        sent = await hub.rows("SELECT ever_sent, waiting FROM delivery WHERE account_id = 2")
        assert sent == [{"ever_sent": 1, "waiting": 1}] * 8
        told = "SELECT count(*) FROM reservation_history WHERE event = 'delivered'"
        assert await hub.one(told) == 8
        await check(hub)


async def forget_deliveries(tx: Tx) -> None:
    await raw(tx, "DELETE FROM delivery WHERE account_id = 2")


@only_postgres
async def test_of_two_changes_of_one_hotel_at_once_both_stay(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub, open_hub(tmp_path, seed=False) as other:
        change = HotelChange(columns={"language": "it"}, settings={"stale_after_h": 6})
        async with hub.ctx.transaction() as tx:
            await raw(tx, """UPDATE hotel SET name = 'Post', settings = '{"off": ["rooms"]}'""")
            task = asyncio.create_task(change_hotel(other.ctx.store, "DEMO", change))
            await until_blocked(hub.ctx.store)
        await task
        [row] = await hub.rows("SELECT name, language, settings FROM hotel")
        assert (row["name"], row["language"]) == ("Post", "it")
        assert json.loads(row["settings"]) == {"off": ["rooms"], "stale_after_h": 6}


@only_postgres
async def test_of_two_changes_of_a_forms_options_at_once_both_stay(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub, open_hub(tmp_path, seed=False) as other:
        secret = "0123456789abcdefghij"
        await add_source(hub.ctx, "DEMO", "form", "contact", secret, {"honeypot": "url"})
        redirect = {"redirect": "https://edelw.example/danke"}
        async with hub.ctx.transaction() as tx:
            await raw(tx, """UPDATE source SET options = '{"honeypot": "fax"}'""")
            task = asyncio.create_task(set_options(other.ctx.store, "DEMO", "contact", redirect))
            await until_blocked(hub.ctx.store)
        await task
        options = await hub.one("SELECT options FROM source WHERE name = 'contact'")
        assert json.loads(options) == {"honeypot": "fax", **redirect}


@only_postgres
async def test_who_adds_a_source_at_the_same_moment_is_told_so(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub, open_hub(tmp_path, seed=False) as other:
        copy = """INSERT INTO source
            (hotel_id, kind, name, secret, fingerprint, created_at, changed_at)
            SELECT hotel_id, kind, 'shop', secret, 'x', 0, 0 FROM source"""
        async with hub.ctx.transaction() as tx:
            await raw(tx, copy)
            added = add_source(other.ctx, "DEMO", "generic", "shop", "another-secret")
            task = asyncio.create_task(added)
            await until_blocked(hub.ctx.store)
        with pytest.raises(Unusable, match="a source 'shop' already"):
            await task
