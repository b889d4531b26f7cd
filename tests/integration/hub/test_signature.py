"""X-Signature-256: HMAC-SHA256 of the raw body."""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path

import pytest
from msgspec import structs
from tests.integration.hub.material import BOOKING, SECRET, open_hub

from alpinehub.hotels import NewHotel, add_hotel
from alpinehub.sources import add_source
from cordata.vault import Vault

BODY = json.dumps(BOOKING).encode()


def sign(body: bytes, secret: str = SECRET) -> str:
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


@pytest.mark.parametrize("prefix", ["", "sha256="])
async def test_signature_is_enough_when_it_is_right(tmp_path: Path, prefix: str) -> None:
    async with open_hub(tmp_path) as hub:
        headers = {"x-webhook-secret": None, "x-signature-256": prefix + sign(BODY)}
        assert (await hub.post(body=BODY, headers=headers)).status == 200
        upper = {**headers, "x-signature-256": prefix + sign(BODY).upper()}
        assert (await hub.post(body=BODY, headers=upper)).status == 200


@pytest.mark.parametrize(
    "signature",
    [
        "",
        "sha256=",
        sign(BODY)[:-1],
        sign(BODY, "wrong"),
        sign(BODY + b" "),
        "sha1=" + sign(BODY),
        "ä" * 64,
    ],
)
async def test_signature_is_refused_when_it_is_wrong(tmp_path: Path, signature: str) -> None:
    async with open_hub(tmp_path) as hub:
        only = {"x-webhook-secret": None, "x-signature-256": signature}
        assert (await hub.post(body=BODY, headers=only)).status == 401
        # A right secret does not excuse a body that was changed on its way.
        both = {"x-signature-256": signature}
        assert (await hub.post(body=BODY, headers=both)).status == 401


async def test_signature_covers_raw_bytes_when_source_is_named(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        for body, status in ((BODY, 200), (b"{", 400), (b'{"hotel_code":"X"}', 404)):
            headers = {"x-webhook-secret": None, "x-signature-256": sign(body)}
            assert (await hub.post(body=body, headers=headers, query="source=1")).status == status
            for query in ("source=2", "source=x", "source=9" + "9" * 30, "&".join("a" * 30)):
                answer = await hub.post(body=body, headers=headers, query=query)
                assert answer.status == 401, query
            assert (await hub.post(body=body, headers=headers)).status == status


async def test_signature_is_tried_with_the_hotels_sources_when_there_are_many(
    tmp_path: Path,
) -> None:
    async with open_hub(tmp_path) as hub:
        for number in range(5):
            await add_source(hub.ctx, "DEMO", "generic", f"s{number}", f"secret-{number}")
        large = {**BOOKING, "message": "x" * 10_000}
        for size, payload, status in (
            (0, large, 200),
            (250_000, {**large, "external_id": "n-2"}, 200),
            (250_000, {**large, "hotel_code": "OTHER"}, 401),
        ):
            body = json.dumps(payload).encode() + b" " * size
            headers = {"x-webhook-secret": None, "x-signature-256": sign(body, "secret-3")}
            assert (await hub.post(body=body, headers=headers)).status == status


async def test_source_is_told_apart_by_hotel_and_secret(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        for code in ("ROSE", "EDEL"):
            await add_hotel(hub.ctx.store, NewHotel(code=code, name=code))
            await add_source(hub.ctx, code, "generic", "agency", "shared")
        await add_source(hub.ctx, "ROSE", "generic", "shop", "other")
        for code, secret, status in (
            ("ROSE", "shared", 200),
            ("EDEL", "shared", 200),
            ("ROSE", "other", 200),
            ("EDEL", "other", 404),
            ("DEMO", "shared", 404),
            ("NONE", "shared", 404),
        ):
            body = json.dumps({**BOOKING, "hotel_code": code}).encode()
            answer = await hub.post(body=body, headers={"x-webhook-secret": secret})
            assert answer.status == status
            signed = {"x-webhook-secret": None, "x-signature-256": sign(body, secret)}
            assert (await hub.post(body=body, headers=signed)).status == status
        rows = await hub.rows(
            "SELECT s.name, h.code FROM reservation r JOIN source s ON s.id = r.source_id"
            " JOIN hotel h ON h.id = r.hotel_id ORDER BY r.created_at, r.id"
        )
        assert [tuple(row.values()) for row in rows] == [
            ("agency", "ROSE"),
            ("agency", "EDEL"),
            ("shop", "ROSE"),
        ]


async def test_signature_is_enough_when_the_secret_of_another_source_does_not_open(
    tmp_path: Path,
) -> None:
    async with open_hub(tmp_path) as hub:
        before = structs.replace(hub.ctx, vault=Vault(b"ab" * 32))
        await add_source(before, "DEMO", "generic", "of-the-old-key", "old")
        for secret, status in ((SECRET, 200), ("old", 401)):
            headers = {"x-webhook-secret": None, "x-signature-256": sign(BODY, secret)}
            assert (await hub.post(body=BODY, headers=headers)).status == status
            named = await hub.post(body=BODY, headers=headers, query="source=2")
            assert named.status == 401
