"""What the connection layer and the application make of a request together."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from tests.integration.hub.material import BOOKING, open_hub
from tests.integration.hub.served import client_of

from cordata.config.sections import HttpConfig


async def test_webhook_answers_over_http_when_all_is_real(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub, client_of(hub) as client:
        sent = {**hub.headers, "x-request-id": "web-42"}
        answer = await client.post("/api/webhook/generic", json=BOOKING, headers=sent)
        assert answer.status_code == 200 and answer.headers["x-request-id"] == "web-42"
        assert await hub.one("SELECT id FROM reservation") == answer.json()["id"]
        for table in ("reservation_version", "inbox"):
            assert await hub.one(f"SELECT request_id FROM {table}") == "web-42"
        assert json.loads(await hub.one("SELECT headers FROM event"))["request_id"] == "web-42"

        bad = await client.post("/api/webhook/generic", content=b"{", headers=sent)
        assert bad.status_code == 400 and bad.json()["request_id"] == "web-42"
        nobody = await client.post("/api/webhook/generic", json=BOOKING)
        assert nobody.status_code == 401
        large = await client.post(
            "/api/webhook/generic", content=b" " * 300_000, headers=hub.headers
        )
        assert large.status_code == 413
        other = await client.post("/api/webhook/generic", content="x=1", headers={
            **hub.headers, "content-type": "application/x-www-form-urlencoded",
        })  # fmt: skip
        assert other.status_code == 415
        assert (await client.get("/api/webhook/generic")).status_code == 405
        assert (await client.get("/api/webhook/nothing")).status_code == 404
        for path, status in (("/api/health", "alive"), ("/api/ready", "ready")):
            assert (await client.get(path)).json() == {"status": status}
            assert (await client.head(path)).status_code == 200
            refused = await client.post(path)
            assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")
        nothing = await client.get("/api/healthy")
        assert nothing.status_code == 404
        assert nothing.json().keys() >= {"error", "message", "request_id"}


async def test_webhook_takes_a_chunked_body(tmp_path: Path) -> None:
    async def body() -> AsyncIterator[bytes]:
        for byte in json.dumps(BOOKING).encode():
            yield bytes((byte,))

    async with open_hub(tmp_path) as hub, client_of(hub) as client:
        answer = await client.post("/api/webhook/generic", content=body(), headers=hub.headers)
        assert answer.status_code == 200


@pytest.mark.usefixtures("each_store")
async def test_webhook_takes_many_at_once(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub, client_of(hub) as client:

        async def post(number: int) -> str:
            payload = {
                **BOOKING,
                "external_id": f"n-{number % 50}",
                "email": f"e{number % 50}@x.it",
            }
            answer = await client.post("/api/webhook/generic", json=payload, headers=hub.headers)
            assert answer.status_code == 200
            found: str = answer.json()["id"]
            return found

        ids = await asyncio.gather(*map(post, range(100)))
        assert ids[:50] == ids[50:] and len(set(ids)) == 50
        for table in ("reservation", "customer", "event", "delivery", "inbox"):
            assert await hub.one(f"SELECT count(*) FROM {table}") == 50


async def test_other_method_than_post_is_refused_as_alpinebits_says_it(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub, client_of(hub) as client:
        for method in ("GET", "PUT", "DELETE", "OPTIONS"):
            answer = await client.request(method, "/api/alpinebits")
            assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
            assert answer.headers["content-type"].startswith("text/plain")
            assert answer.text.startswith("ERROR:")


@pytest.mark.parametrize("chunked", [False, True])
async def test_body_that_is_too_large_is_refused_as_alpinebits_says_it(
    tmp_path: Path, chunked: bool
) -> None:
    """Also where the connection layer does it, before the application hears of the request."""
    large = HttpConfig().max_body_bytes + 1

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(large // 65536 + 1):
            yield b"x" * 65536

    async with open_hub(tmp_path) as hub, client_of(hub) as client:
        for path, is_ours in (
            ("/api/alpinebits", True),
            ("/api/alpinebits?x=1", True),
            ("/", False),
        ):
            content = pieces() if chunked else b"x" * large
            login = httpx.BasicAuth("demo", "demo")
            headers = {"X-AlpineBits-ClientProtocolVersion": "2024-10"}
            answer = await client.post(path, content=content, auth=login, headers=headers)
            if chunked and not is_ours:
                continue  # 404 comes first
            assert answer.status_code == 413
            assert answer.text.startswith("ERROR:") == is_ours
            kind = "text/plain" if is_ours else "application/json"
            assert answer.headers["content-type"].startswith(kind)
