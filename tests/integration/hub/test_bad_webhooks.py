"""What no form should send: a clear answer, nothing half stored, no secret in any log."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from tests.integration.hub.lenient import (
    FORM,
    GOOGLE,
    GOOGLE_KEY,
    PATH_SECRET,
    WIX,
    open_lenient,
    post_form,
    post_google,
    post_wix,
    wix,
)
from tests.integration.hub.material import Answer, Hub
from tests.integration.hub.served import client_of

from alpinehub.webhooks import form_shapes

on_each_store = pytest.mark.usefixtures("each_store")
SAMPLES = Path(__file__).resolve().parents[2] / "data" / "webhook"
_TABLES = (
    "inbox", "reservation", "reservation_version", "customer", "delivery", "event", "form",
    "reservation_history",
)  # fmt: skip


async def tables(hub: Hub) -> list[int]:
    return [await hub.one(f"SELECT count(*) FROM {table}") for table in _TABLES]


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"body": b""}, 400),
        ({"body": b" \r\n"}, 400),
        ({"body": b"x" * 262_145}, 413),
        ({"headers": {"content-length": "104857600"}}, 413),
        ({"headers": {"content-encoding": "gzip"}}, 415),
        ({"headers": {"content-encoding": "br, gzip"}}, 415),
        ({"method": "GET"}, 405),
        ({"method": "PUT"}, 405),
    ],
)
@pytest.mark.parametrize("kind", ["wix", "form"])
async def test_refused_post_leaves_nothing(
    tmp_path: Path, kind: str, change: dict[str, Any], status: int
) -> None:
    async with open_lenient(tmp_path) as hub:
        before = await tables(hub)
        secret = PATH_SECRET if kind == "wix" else PATH_SECRET.replace("secret", "form")
        headers = {
            "x-webhook-secret": None,
            "content-type": "application/x-www-form-urlencoded",
            "accept": "application/json",
            **change.get("headers", {}),
        }
        answer = await hub.post(
            **{"body": b"a=b", "path": f"/api/webhook/{kind}/DEMO/{secret}", **change,
               "headers": headers}
        )  # fmt: skip
        assert answer.status == status and answer.json["request_id"] == "r-1"
        assert await tables(hub) == before


async def test_google_lead_that_is_too_large_or_compressed_leaves_nothing(tmp_path: Path) -> None:
    async with open_lenient(tmp_path) as hub:
        before = await tables(hub)
        answer = await post_google(hub, body=b" " * 262_145)
        assert (answer.status, answer.json["error"]) == (413, "too_large")
        headers = {"x-webhook-secret": None, "content-encoding": "gzip"}
        answer = await hub.post(GOOGLE, path="/api/webhook/google", headers=headers)
        assert (answer.status, answer.json["error"]) == (415, "unsupported_encoding")
        assert await tables(hub) == before


@pytest.mark.parametrize("content_type", ["text/plain", "application/json", "", "multipart/mixed"])
async def test_form_that_is_none_is_refused(tmp_path: Path, content_type: str) -> None:
    async with open_lenient(tmp_path) as hub:
        sent: dict[str, str | None] = {"content-type": content_type, "accept": "application/json"}
        answer = await post_form(hub, headers=sent)
        assert (answer.status, answer.json["error"]) == (415, "unsupported_type")
        assert await hub.one("SELECT count(*) FROM inbox") == 0


@on_each_store
async def test_every_sample_ends_mapped_rejected_or_in_review(tmp_path: Path) -> None:
    async with open_lenient(tmp_path, form_per_minute=0) as hub:
        sent = 0
        for path in sorted(SAMPLES.rglob("*.json")):
            kind = path.parent.name
            if kind not in ("wix", "google", "form"):
                continue
            sample = json.loads(path.read_text())
            answer = await post(hub, kind, sample)
            assert answer.status == 200, path
            sent += 1
        await hub.handle_events()
        rows = await hub.rows("SELECT state, outcome, error, reservation_id FROM inbox")
        robots = await hub.one("SELECT count(*) FROM hour_change WHERE kind = 'spam'")
        assert len(rows) + robots == sent > 60
        for row in rows:
            if row["state"] == "mapped":
                assert row["reservation_id"] and row["outcome"] in ("new", "changed", "duplicate")
            elif row["state"] == "review":
                assert row["error"] and row["reservation_id"] is None
            else:
                assert row["state"] == "rejected" and row["outcome"] == "test"
        made = {row["reservation_id"] for row in rows if row["state"] == "mapped"}
        assert await hub.one("SELECT count(*) FROM reservation") == len(made)
        assert await hub.one("SELECT count(*) FROM message WHERE state <> 'dead'") == 0


async def post(hub: Hub, kind: str, sample: dict[str, Any]) -> Answer:
    given = sample["body"]
    if kind == "google":
        return await post_google(hub, {**given, "google_key": GOOGLE_KEY})
    body = given.encode() if isinstance(given, str) else json.dumps(given).encode()
    if kind == "wix":
        return await post_wix(hub, body=body)
    return await post_form(hub, body=body, headers={"content-type": sample["content_type"]})


NASTY = (
    "'; DROP TABLE reservation; --",
    '<script>alert("x")</script>',
    "{{7*7}}${7*7}%s{}",
    "=cmd|'/c calc'!A1",
    "\u202eevil\u2066",
    "Zoe\u0308 \U0001f600",
    "\\x00 \\u0000",
)


@on_each_store
async def test_any_field_may_hold_any_text(tmp_path: Path) -> None:
    async with open_lenient(tmp_path) as hub:
        fields = [name for name in WIX["data"] if name.startswith("field:")]
        texts = ("first_name_abae", "last_name_12f0", "long_answer_3524")
        for number, text in enumerate(NASTY):
            change: dict[str, Any] = {f"field__{name}": text for name in texts}
            await post_wix(hub, wix(submissionId=f"{text}{number}", formId=text, **change))
            every = dict.fromkeys(fields, text)
            await post_wix(hub, {"data": {"submissionId": text, "formId": text, **every}})
            await post_form(hub, dict.fromkeys(FORM, text))
            await post_google(hub, {**GOOGLE, "lead_id": text, "gcl_id": text})
        await hub.handle_events()
        rows = await hub.rows("SELECT data FROM reservation_version ORDER BY id")
        mapped = [json.loads(row["data"]) for row in rows]
        kept = {record["message"] for record in mapped if "message" in record}
        assert kept == set(NASTY)
        assert await hub.one("SELECT count(*) FROM hour_change WHERE kind = 'spam'") == len(NASTY)


@on_each_store
async def test_no_store_stumbles_over_what_no_text_may_hold(tmp_path: Path) -> None:
    async with open_lenient(tmp_path) as hub:
        bad = ("\x00", "a\x00b", "\ud800", "\ufffe", "\x1b[2J")
        for text in bad:
            everywhere = dict.fromkeys(WIX["data"], text)
            everywhere |= {f"field:{text}": text, "utm_source": text, f"utm_{text}": text}
            await post_wix(hub, {"data": everywhere | {"submissions": [{"label": text}]}})
            await post_wix(hub, wix(submissionId=f"{text}1", formId=text, formName=text))
            await post_google(hub, {**GOOGLE, "lead_id": f"2{text}", "form_id": text})
            fields = [(name, text.encode("utf-8", "surrogatepass")) for name in FORM]
            await post_form(hub, [*fields, (b"_form", b"\x00"), (b"\x00", b"\x00")])
        await hub.handle_events()
        rows = await hub.rows("SELECT state, count(*) AS n FROM inbox GROUP BY state")
        assert {row["state"]: row["n"] for row in rows} == {
            "mapped": 2 * len(bad),
            "review": len(bad),
        }
        assert await hub.one("SELECT count(*) FROM hour_change WHERE kind = 'spam'") == len(bad)


@pytest.mark.parametrize("number", ["9" * 4301, "1e999", "NaN"])
async def test_lead_is_not_lost_for_a_number_that_python_does_not_read(
    tmp_path: Path, number: str
) -> None:
    body = json.dumps(GOOGLE)[:-1] + f', "more": {number}'
    async with open_lenient(tmp_path) as hub:
        answer = await post_google(hub, body=f"{body}}}".encode())
        assert (answer.status, answer.body) == (200, b"{}")
        wrong = f'{body}, "google_key": "wrong"}}'.encode()
        assert (await post_google(hub, body=wrong)).status == 401
        await hub.handle_events()
        assert await hub.one("SELECT state FROM inbox") == "mapped"


async def test_table_of_forms_does_not_grow_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(form_shapes, "MAX_SHAPES", 3)
    monkeypatch.setattr(form_shapes, "MAX_OF_SOURCE", 5)
    async with open_lenient(tmp_path) as hub:
        for number in range(10):
            await post_form(hub, {**FORM, f"f{number}": "x"})
            await post_form(hub, {**FORM, "_form": str(number), "adults": str(number + 1)})
        await hub.handle_events()
        assert await hub.one("SELECT count(*) FROM form") == 5
        assert await hub.one("SELECT count(*) FROM form WHERE form_key = ''") == 3
        assert await hub.one("SELECT count(*) FROM inbox WHERE state = 'mapped'") == 20


async def test_secret_in_a_path_and_one_in_a_header_must_both_be_right(tmp_path: Path) -> None:
    async with open_lenient(tmp_path) as hub, client_of(hub) as client:

        async def status(path: str, secret: str) -> int:
            headers = {"x-webhook-secret": secret}
            answer = await client.post(f"/api/webhook/wix/{path}", json=WIX, headers=headers)
            return answer.status_code

        full = f"DEMO/{PATH_SECRET}"
        assert await status("DEMO", PATH_SECRET) == 200
        assert await status(full, PATH_SECRET) == 200
        for path, secret in ((full, "wrong"), (f"{full}x", PATH_SECRET), (full, ""), ("DEMO", "")):
            assert await status(path, secret) == 401, (path, secret)


async def test_no_secret_is_in_a_log_or_the_store(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with open_lenient(tmp_path) as hub, client_of(hub) as client:
        form = PATH_SECRET.replace("secret", "form")
        path = f"/api/webhook/wix/DEMO/{PATH_SECRET}"
        assert (await client.post(path, json=WIX)).status_code == 200
        assert (await client.post(path, content=b"")).status_code == 400
        assert (await client.get(path)).status_code == 405
        assert (await client.post(path + "x", json=WIX)).status_code == 401
        assert (await client.post(f"{path}?secret={PATH_SECRET}", json=WIX)).status_code == 200
        assert (await client.post(f"/api/webhook/form/DEMO/{form}", data=FORM)).status_code == 200
        assert (await client.post("/api/webhook/google", json=GOOGLE)).status_code == 200
        bad = {**GOOGLE, "google_key": GOOGLE_KEY + "x"}
        assert (await client.post("/api/webhook/google", json=bad)).status_code == 401
        await hub.handle_events()
        for row in await hub.rows("SELECT * FROM inbox"):
            told = str({**row, "body": bytes(row["body"])})
            assert all(secret not in told for secret in (PATH_SECRET, form, GOOGLE_KEY))
    log = "\n".join(str(vars(record)) for record in caplog.records if record.name != "httpx")
    log = "\n".join(line for line in log.splitlines() if "httpcore" not in line)
    for secret in (PATH_SECRET, form, GOOGLE_KEY):
        assert secret not in log
    assert "eva@example.com" not in log
