"""POST /api/webhook/generic on a real store."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from tests.integration.hub.material import BOOKING, PRICE, SECRET, Hub, open_hub
from tests.integration.hub.served import client_of

from alpinehub.app import check_secrets
from alpinehub.asgi import Reply
from alpinehub.webhooks.endpoint import WebhookRequest, Webhooks
from cordata import StoreUnavailable
from cordata.vault import Vault

on_each_store = pytest.mark.usefixtures("each_store")

RESERVATION: dict[str, Any] = {**BOOKING, **PRICE}
CANCEL = {"hotel_code": "DEMO", "status": "cancelled", "external_id": "n-1"}
TABLES = (
    "inbox",
    "customer",
    "reservation",
    "reservation_version",
    "delivery",
    "event",
    "idempotency",
)


async def counts(hub: Hub) -> dict[str, int]:
    return {table: await hub.one(f"SELECT count(*) FROM {table}") for table in TABLES}


@on_each_store
async def test_post_stores_everything_when_payload_is_good(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        answer = await hub.post(BOOKING)
        assert answer.status == 200
        assert answer.headers[b"content-type"] == b"application/json"
        assert list(answer.json) == ["id"] and len(answer.id) == 32
        [reservation] = await hub.rows("SELECT * FROM reservation")
        assert reservation["id"] == answer.id and reservation["version"] == 1
        [version] = await hub.rows("SELECT * FROM reservation_version")
        assert version["res_status"] == "Requested" and version["request_id"] == "r-1"
        [inbox] = await hub.rows("SELECT * FROM inbox")
        assert inbox["reservation_id"] == answer.id and inbox["state"] == "mapped"
        assert inbox["outcome"] == "new" and inbox["handled_at"] == inbox["received_at"]
        assert json.loads(inbox["body"]) == BOOKING and inbox["request_id"] == "r-1"
        assert SECRET not in str(inbox)
        [customer] = await hub.rows("SELECT * FROM customer")
        assert (customer["email"], customer["phone"]) == ("eva@example.com", "+393331234567")
        [delivery] = await hub.rows("SELECT * FROM delivery")
        assert delivery["waiting"] == 1 and delivery["unique_id_type"] == 14
        [event] = await hub.rows("SELECT * FROM event")
        assert event["type"] == "reservation.received" and event["key"] == answer.id
        assert "eva" not in str(event).lower()
        assert json.loads(event["headers"])["request_id"] == "r-1"


@on_each_store
async def test_post_writes_nothing_when_content_is_equal(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        first = await hub.post(BOOKING)
        before = await counts(hub)
        backwards = dict(reversed(BOOKING.items()))
        assert (await hub.post({**backwards, "phone": "0039 333 1234567"})).id == first.id
        assert await counts(hub) == before


@on_each_store
async def test_post_is_a_modification_when_content_differs(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        first = await hub.post(RESERVATION)
        assert (await hub.post({**RESERVATION, "adults": 3})).id == first.id
        versions = await hub.rows("SELECT version, res_status FROM reservation_version")
        assert [(v["version"], v["res_status"]) for v in versions] == [
            (1, "Reserved"),
            (2, "Modify"),
        ]
        assert await hub.one("SELECT version FROM reservation") == 2
        events = await hub.rows("SELECT type FROM event ORDER BY position")
        assert [e["type"] for e in events] == ["reservation.received", "reservation.modified"]
        deliveries = await hub.rows("SELECT version, waiting FROM delivery ORDER BY version")
        assert [(d["version"], d["waiting"]) for d in deliveries] == [(1, 0), (2, 1)]
        assert await hub.one("SELECT count(*) FROM customer") == 1
        rows = await hub.rows("SELECT outcome FROM inbox ORDER BY id")
        assert [row["outcome"] for row in rows] == ["new", "changed"]


@on_each_store
async def test_cancellation_carries_little_when_reservation_is_known(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        first = await hub.post(RESERVATION)
        assert (await hub.post(CANCEL)).id == first.id
        assert (await hub.post(CANCEL)).id == first.id
        [_, version] = await hub.rows("SELECT * FROM reservation_version ORDER BY id")
        assert version["res_status"] == "Cancelled"
        data = json.loads(version["data"])
        assert (data["status"], data["last_name"]) == ("cancelled", "Muster")
        events = await hub.rows("SELECT type FROM event ORDER BY position")
        assert [e["type"] for e in events] == ["reservation.received", "reservation.cancelled"]
        [waiting] = await hub.rows("SELECT * FROM delivery WHERE waiting = 1")
        assert (waiting["version"], waiting["unique_id_type"]) == (2, 15)
        # And the guest may book again, in other words than those that were cancelled.
        assert (await hub.post(RESERVATION)).id == first.id
        assert await hub.one("SELECT status FROM reservation") == "cancelled"
        assert (await hub.post({**RESERVATION, "adults": 3})).id == first.id
        assert await hub.one("SELECT status FROM reservation") == "reservation"


@on_each_store
async def test_cancellation_must_be_complete_when_nothing_is_known(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        answer = await hub.post(CANCEL)
        assert answer.status == 422
        assert answer.fields == ["external_id", "arrival", "departure", "adults", "last_name"]
        assert sum((await counts(hub)).values()) == 0
        assert (await hub.post({**BOOKING, "status": "cancelled"})).status == 200
        assert await hub.one("SELECT res_status FROM reservation_version") == "Cancelled"


@on_each_store
async def test_each_post_is_new_when_it_has_no_external_id(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        payload = {**BOOKING, "external_id": None}
        assert (await hub.post(payload)).id != (await hub.post(payload)).id
        assert await hub.one("SELECT count(*) FROM customer") == 1


@on_each_store
async def test_idempotency_key_gives_first_response_when_body_is_the_same(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        payload = {**BOOKING, "external_id": None}
        key = {"idempotency-key": "k-1"}
        first = await hub.post(payload, headers=key)
        before = await counts(hub)
        assert (await hub.post(payload, headers=key)).body == first.body
        assert await counts(hub) == before
        other = await hub.post({**payload, "adults": 3}, headers=key)
        assert (other.status, other.json["error"]) == (422, "idempotency_key_reused")
        assert await counts(hub) == before
        for bad in ("", "x" * 201, "käy"):
            assert (await hub.post(payload, headers={"idempotency-key": bad})).status == 422


async def test_idempotency_key_remembers_nothing_when_request_was_refused(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        key = {"idempotency-key": "k-1"}
        assert (await hub.post({**BOOKING, "adults": 0}, headers=key)).status == 422
        assert (await hub.post(CANCEL, headers=key)).status == 422
        assert (await hub.post(BOOKING, headers=key)).status == 200


@pytest.mark.parametrize(
    ("change", "status", "error"),
    [
        ({"headers": {"content-type": "text/plain"}}, 415, "unsupported_type"),
        ({"headers": {"content-type": None}}, 415, "unsupported_type"),
        (
            {"headers": {"content-type": "application/json; charset=latin1"}},
            415,
            "unsupported_type",
        ),
        (
            {"headers": {"content-type": 'application/json; a=b; charset="latin-1"'}},
            415,
            "unsupported_type",
        ),
        ({"headers": {"content-encoding": "gzip"}}, 415, "unsupported_encoding"),
        ({"body": b"{"}, 400, "bad_json"),
        ({"body": b"[" * 200_000}, 400, "bad_json"),
        ({"body": b" " * 262_145}, 413, "too_large"),
        ({"body": b" " * 262_145, "chunks": 9}, 413, "too_large"),
        ({"headers": {"content-length": "99999999999"}}, 413, "too_large"),
        ({"headers": {"x-webhook-secret": "wrong"}}, 401, "unauthorized"),
        ({"headers": {"x-webhook-secret": None}}, 401, "unauthorized"),
        ({"headers": {"x-webhook-secret": ""}}, 401, "unauthorized"),
        ({"headers": {"x-webhook-secret": "x" * 20_000}}, 401, "unauthorized"),
        ({"payload": {**BOOKING, "hotel_code": "OTHER"}}, 404, "unknown_hotel"),
        ({"payload": {**BOOKING, "hotel_code": "demo"}}, 404, "unknown_hotel"),
        ({"payload": {"hotel_code": "OTHER"}}, 404, "unknown_hotel"),
        ({"payload": {**BOOKING, "hotel_code": " "}}, 422, "invalid"),
        ({"payload": {**BOOKING, **PRICE, "total": None}}, 422, "invalid"),
        ({"method": "GET"}, 405, "method_not_allowed"),
        ({"path": "/api/webhook/other"}, 404, "not_found"),
        ({"path": "/api/webhook"}, 404, "not_found"),
    ],
)
async def test_post_is_refused_with_its_code(
    tmp_path: Path, change: dict[str, Any], status: int, error: str
) -> None:
    async with open_hub(tmp_path) as hub:
        answer = await hub.post(**{"payload": BOOKING, **change})
        assert (answer.status, answer.json["error"]) == (status, error)
        assert answer.headers[b"content-type"] == b"application/json"
        assert answer.json["request_id"] == "r-1" and answer.json["message"]
        assert sum((await counts(hub)).values()) == 0


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "Application/JSON; charset=UTF-8",
        'application/json; charset="utf-8"; a=b',
        "application/vnd.lead+json",
    ],
)
async def test_post_is_taken_when_type_is_a_kind_of_json(tmp_path: Path, content_type: str) -> None:
    async with open_hub(tmp_path) as hub:
        answer = await hub.post(BOOKING, headers={"content-type": content_type}, chunks=7)
        assert answer.status == 200


async def test_refusal_tells_nothing_of_hotels_when_secret_is_wrong(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        bodies = set()
        wrong: dict[str, str | None] = {"x-webhook-secret": "wrong"}
        signed: dict[str, str | None] = {"x-webhook-secret": None, "x-signature-256": "00" * 32}
        for headers in (wrong, signed):
            for body in (
                json.dumps(BOOKING).encode(),
                json.dumps({**BOOKING, "hotel_code": "OTHER"}).encode(),
                b"{}",
                b"[",
                b"\xff",
                b"[" * 100_000,
            ):
                answer = await hub.post(body=body, headers=headers)
                assert answer.status == 401
                bodies.add((answer.body, tuple(answer.headers)))
        assert len(bodies) == 1


@on_each_store
async def test_markup_and_foreign_scripts_are_kept_verbatim(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        nasty = {
            "first_name": "'; DROP TABLE reservation; --",
            "last_name": "<b>&\u202eמרים</b>",
            "message": '<script>alert("x")</script>\n\U0001f600 Zoe\u0308 %s {} \\',
        }
        assert (await hub.post({**BOOKING, **nasty})).status == 200
        data = json.loads(await hub.one("SELECT data FROM reservation_version"))
        assert {name: data[name] for name in nasty} == nasty


async def test_missing_master_key_is_a_503_and_said_at_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_hub(tmp_path) as hub:
        keyless = replace(hub, ctx=structs.replace(hub.ctx, vault=Vault(None)))
        answer = await keyless.post(BOOKING)
        assert (answer.status, answer.json["error"]) == (503, "not_configured")
        assert b"retry-after" in answer.headers and "master-key" in caplog.text
        caplog.clear()
        await check_secrets(hub.ctx)
        assert not caplog.text
        for vault in (Vault(None), Vault(b"ab" * 32)):
            await check_secrets(structs.replace(hub.ctx, vault=vault))
            assert "DEMO/website" in caplog.text
            caplog.clear()


async def test_store_that_cannot_write_is_a_503_with_retry_after(tmp_path: Path) -> None:
    async def failing(call: object) -> Reply:
        raise StoreUnavailable("the disk is full", retry_after_s=7)

    async with open_hub(tmp_path) as hub:
        answer = await hub.call(
            "POST", "/api/webhook/generic", [], app=Webhooks({"/generic": failing})
        )
        assert answer.status == 503 and answer.headers[b"retry-after"] == b"7"
        assert answer.json["error"] == "store_unavailable"


async def test_endpoint_takes_all_paths_below_its_name_when_that_ends_with_a_slash(
    tmp_path: Path,
) -> None:
    async def below(request: WebhookRequest) -> Reply:
        return Reply(200, json.dumps(["below", request.rest]).encode())

    async def exact(request: WebhookRequest) -> Reply:
        return Reply(200, json.dumps(["exact", request.rest]).encode())

    app = Webhooks({"/shop/": below, "/shop": exact})
    async with open_hub(tmp_path) as hub:
        for path, expected in (
            ("/shop", ["exact", ""]),
            ("/shop/", ["below", ""]),
            ("/shop/DEMO/s3cret", ["below", "DEMO/s3cret"]),
            ("/shops/DEMO", None),
            ("/shop//", ["below", "/"]),
            ("//shop/", None),
        ):
            answer = await hub.call("POST", f"/api/webhook{path}", [], app=app)
            assert (answer.json if answer.status == 200 else None) == expected, path


async def test_log_names_fields_but_nothing_that_a_guest_wrote(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_hub(tmp_path) as hub, client_of(hub) as client:
        bad = {**BOOKING, "adults": 0, "ariva": 1, "eva@example.com": 1, "+39 333 1234567": 1}
        answer = await client.post("/api/webhook/generic", json=bad, headers=hub.headers)
        assert answer.status_code == 422
    [line] = [r.getMessage() for r in caplog.records if r.name == "cordata.http"]
    assert "adults: expected int >= 1" in line and "ariva: unknown field" in line
    assert "eva@" not in line and "1234567" not in line and line.count("(some field)") == 2
