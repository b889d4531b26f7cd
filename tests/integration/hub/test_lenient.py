"""POST /api/webhook/wix, /google, /form on a real store: the inbox and the reservation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.integration.hub.lenient import (
    FORM,
    GOOGLE,
    GOOGLE_KEY,
    PATH_SECRET,
    WIX,
    data,
    open_lenient,
    post_form,
    post_google,
    post_wix,
    wix,
)

from alpinehub.hotels import NewHotel, add_hotel
from alpinehub.sources import add_source

on_each_store = pytest.mark.usefixtures("each_store")


@on_each_store
async def test_wix_submission_is_a_reservation_when_it_is_answered(tmp_path: Path) -> None:
    async with open_lenient(tmp_path) as hub:
        answer = await post_wix(hub)
        assert (answer.status, answer.json) == (200, {"status": "received"})
        [row] = await hub.rows("SELECT * FROM inbox")
        assert (row["state"], row["outcome"], row["request_id"]) == ("mapped", "new", "r-1")
        assert json.loads(row["body"]) == WIX and PATH_SECRET not in str(row)
        [reservation] = await hub.rows("SELECT * FROM reservation")
        assert reservation["id"] == row["reservation_id"]
        assert reservation["external_id"] == WIX["data"]["submissionId"]
        assert row["external_id"] == reservation["external_id"]
        record = await data(hub)
        assert (record["arrival"], record["departure"]) == ("2027-02-01", "2027-02-08")
        assert (record["adults"], record["first_name"]) == (2, "Eva")
        assert (record["city"], record["country"], record["language"]) == ("Bozen", "IT", "de")
        assert record["message"] == "Ist das Zimmer frei?" and "extra" not in record
        events = await hub.rows("SELECT event, detail, request_id FROM reservation_history")
        assert sorted(e["event"] for e in events) == ["mapped", "received"]
        [mapped] = [e for e in events if e["event"] == "mapped"]
        assert json.loads(mapped["detail"]) == {"mapping": 0}
        assert mapped["request_id"] == "r-1"
        assert await hub.one("SELECT count(*) FROM delivery WHERE waiting = 1") == 1


@on_each_store
async def test_submission_sent_again_is_a_duplicate_or_a_change(tmp_path: Path) -> None:
    async with open_lenient(tmp_path) as hub:
        for payload in (WIX, WIX, wix(field__number_7cf5="3"), WIX["data"]):
            assert (await post_wix(hub, payload)).status == 200
            await hub.handle_events()
        rows = await hub.rows("SELECT outcome, reservation_id FROM inbox ORDER BY id")
        assert [row["outcome"] for row in rows] == ["new", "duplicate", "changed", "changed"]
        assert len({row["reservation_id"] for row in rows}) == 1
        assert await hub.one("SELECT version FROM reservation") == 3


@on_each_store
async def test_submission_that_cannot_be_mapped_is_in_review_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_lenient(tmp_path) as hub:
        assert (await post_wix(hub, wix(submissions=[]))).status == 200
        assert (await post_wix(hub, body=b"{eva@example.com")).status == 200
        await hub.handle_events()
        rows = await hub.rows("SELECT state, error, external_id FROM inbox ORDER BY id")
        assert [row["state"] for row in rows] == ["review", "review"]
        assert rows[0]["error"] == "ambiguous:arrival; ambiguous:departure"
        assert rows[0]["external_id"] == WIX["data"]["submissionId"]
        assert rows[1]["error"] == "not_json"
        assert await hub.one("SELECT count(*) FROM reservation") == 0
        told = [r for r in caplog.records if getattr(r, "cordata_fields", {}) or "map" in r.msg]
        text = caplog.text
        assert "source wix of hotel DEMO waits for review: ambiguous:arrival" in text, told
        assert "eva@" not in text and "Muster" not in text and PATH_SECRET not in text


async def test_alert_about_a_submission_in_review_names_the_command_that_settles_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_lenient(tmp_path) as hub:
        for payload, problem, command in (
            ({"body": b"{"}, "not_json", "`alpinehub inbox reject ID --reason TEXT`"),
            (
                {"payload": wix(field__number_7cf5="a few")},
                "unreadable:adults",
                "`alpinehub inbox map DEMO wix --field TARGET=PLACE --try ID`",
            ),
            (
                {
                    "payload": wix(
                        submissions=[
                            {"label": "Anreisedatum", "value": "01.02.2020"},
                            {"label": "Abreisedatum", "value": "08.02.2020"},
                        ]
                    )
                },
                "past:arrival",
                "`alpinehub inbox accept ID`",
            ),
        ):
            caplog.clear()
            assert (await post_wix(hub, **payload)).status == 200
            assert f"waits for review: {problem}; " in caplog.text
            assert command in caplog.text
            assert "`alpinehub inbox list --hotel DEMO --source wix`" in caplog.text


async def test_long_ids_are_compared_completely(tmp_path: Path) -> None:
    async with open_lenient(tmp_path) as hub:
        for name in ("Eva Muster", "Otto Muster"):
            await post_form(hub, {**FORM, "name": name, "request_id": "a" * 128 + name})
            await post_form(hub, {**FORM, "name": name, "request_id": "a" * 128 + name})
        await hub.handle_events()
        assert await hub.one("SELECT count(*) FROM reservation") == 2
        assert await hub.one("SELECT count(*) FROM reservation_version") == 2
        await post_form(hub, {**FORM, "name": "Eva Maier", "request_id": "a" * 128 + "Eva Muster"})
        await hub.handle_events()
        assert await hub.one("SELECT count(*) FROM reservation") == 2
        assert await hub.one("SELECT count(*) FROM reservation_version") == 3


@on_each_store
async def test_google_lead_is_answered_empty_and_its_key_stored_nowhere(tmp_path: Path) -> None:
    async with open_lenient(tmp_path) as hub:
        answer = await post_google(hub)
        assert (answer.status, answer.body) == (200, b"{}")
        body = json.loads(await hub.one("SELECT body FROM inbox"))
        assert body == {**GOOGLE, "google_key": ""}
        await hub.handle_events()
        record = await data(hub)
        assert "arrival" not in record and record["status"] == "request"
        assert (record["first_name"], record["last_name"]) == ("Eva", "Muster")
        assert (record["gclid"], record["utm"]) == (
            "click-1",
            {"source": "google", "campaign": "456"},
        )
        assert record["extra"] == "Wann?: im Februar"
        assert await hub.one("SELECT external_id FROM reservation") == "lead-1"


async def test_campaign_of_wix_is_bounded_and_has_no_empty_parameter(tmp_path: Path) -> None:
    given = {"utm_empty": " ", "utm_source": "x" * 2000, "UTM_other": "y"}
    given |= {f"utm_{number}": f"{number}\n" for number in range(30)}
    async with open_lenient(tmp_path) as hub:
        await post_wix(hub, wix(**given))
        await hub.handle_events()
        kept = {str(number): str(number) for number in range(19)}
        assert (await data(hub))["utm"] == {"source": "x" * 1024, **kept}


@on_each_store
async def test_google_test_lead_reaches_no_hotel(tmp_path: Path) -> None:
    leads: tuple[object, ...] = ("False", "FALSE", "0", 0, {})
    tests = (True, "True", "1", 1)
    async with open_lenient(tmp_path) as hub:
        for number, is_test in enumerate((*leads, *tests)):
            lead = {**GOOGLE, "lead_id": f"lead-{number}", "is_test": is_test}
            assert (await post_google(hub, lead)).body == b"{}"
        await hub.handle_events()
        rows = await hub.rows("SELECT state, outcome FROM inbox ORDER BY id")
        assert [tuple(row.values()) for row in rows] == [
            *[("mapped", "new")] * len(leads),
            *[("rejected", "test")] * len(tests),
        ]
        assert await hub.one("SELECT count(*) FROM reservation") == len(leads)


async def test_browser_and_content_type_of_a_form_are_stored_and_no_secret(tmp_path: Path) -> None:
    async with open_lenient(tmp_path) as hub:
        kind = "application/x-www-form-urlencoded"
        await post_form(hub, headers={"user-agent": "Firefox", "cookie": "a=b"})
        kept = json.loads(await hub.one("SELECT headers FROM inbox"))
        assert kept == {"content-type": kind, "user-agent": "Firefox"}


async def test_field_user_email_is_the_email(tmp_path: Path) -> None:
    fields = {name: value for name, value in FORM.items() if "mail" not in name.lower()}
    async with open_lenient(tmp_path) as hub:
        await post_form(hub, {**fields, "user_email": "u@example.com"})
        await hub.handle_events()
        assert (await data(hub))["email"] == "u@example.com"


@on_each_store
async def test_form_sent_twice_is_one_request_and_a_later_one_another(tmp_path: Path) -> None:
    async with open_lenient(tmp_path) as hub:
        for _ in range(2):
            await post_form(hub)
            await hub.handle_events()
        hub.harness.advance(seconds=30 * 60)
        await post_form(hub)
        await hub.handle_events()
        rows = await hub.rows("SELECT outcome FROM inbox ORDER BY id")
        assert [row["outcome"] for row in rows] == ["new", "duplicate", "new"]


@pytest.mark.parametrize(
    "path",
    [
        "/wix/DEMO/wrong-secret-0123456789",
        "/wix/OTHER/" + PATH_SECRET,
        "/wix/" + PATH_SECRET,
        "/wix/DEMO/",
        "/wix/DEMO/" + "x" * 500,
        f"/wix/DEMO/{PATH_SECRET}/x",
        f"/wix/DEMO/{PATH_SECRET}%2F",
        "/wix/DEMO/planted-form-0123456789",
        "/form/DEMO/" + PATH_SECRET,
        "/google/DEMO",
    ],
)
async def test_whoever_is_not_known_gets_one_answer(tmp_path: Path, path: str) -> None:
    async with open_lenient(tmp_path) as hub:
        sent = {"x-webhook-secret": None}
        answer = await hub.post(WIX, path=f"/api/webhook{path}", headers=sent)
        assert (answer.status, answer.json["error"]) == (401, "unauthorized")
        assert answer.json["message"] == "A valid secret is required."
        assert await hub.one("SELECT count(*) FROM inbox") == 0


@pytest.mark.parametrize("key", ["wrong", "", None, 1, [GOOGLE_KEY], {"a": 1}, "\ud800"])
async def test_google_lead_with_another_key_is_refused(tmp_path: Path, key: object) -> None:
    async with open_lenient(tmp_path) as hub:
        assert (await post_google(hub, {**GOOGLE, "google_key": key})).status == 401
        for body in (b"[", b"[]", b"\xff", b"[" * 100_000, b'"x"'):
            assert (await post_google(hub, body=body)).status == 401
        assert await hub.one("SELECT count(*) FROM inbox") == 0


async def test_one_key_for_two_hotels_is_told_apart_by_the_path(tmp_path: Path) -> None:
    async with open_lenient(tmp_path) as hub:
        await add_hotel(hub.ctx.store, NewHotel(code="A/B", name="Hotel A/B", language="it"))
        await add_source(hub.ctx, "A/B", "google", "ads", GOOGLE_KEY)
        await add_source(hub.ctx, "A/B", "wix", "wix", PATH_SECRET)
        sent = {"x-webhook-secret": None}
        for path, status in (
            ("/google", 401),
            ("/google/DEMO", 200),
            ("/google/A/B", 200),
            ("/google/OTHER", 401),
        ):
            answer = await hub.post(GOOGLE, path=f"/api/webhook{path}", headers=sent)
            assert answer.status == status, path
        for path, secret, status in (
            (f"/wix/A/B/{PATH_SECRET}", None, 200),
            ("/wix/A/B", PATH_SECRET, 200),
            ("/wix/A", PATH_SECRET, 401),
            (f"/wix/DEMO/{PATH_SECRET}", "wrong", 401),
        ):
            headers = {"x-webhook-secret": secret}
            answer = await hub.post(WIX, path=f"/api/webhook{path}", headers=headers)
            assert answer.status == status, path
        await hub.handle_events()
        hotels = await hub.rows(
            "SELECT h.code, count(*) AS n FROM reservation r JOIN hotel h ON h.id = r.hotel_id"
            " GROUP BY h.code ORDER BY h.code"
        )
        assert [(row["code"], row["n"]) for row in hotels] == [("A/B", 2), ("DEMO", 1)]


@pytest.mark.parametrize(
    ("headers", "begins", "holds"),
    [
        ({}, b"<!DOCTYPE html>", b"Danke"),
        ({"accept-language": "it-IT,it;q=0.9"}, b"<!DOCTYPE html>", b"Grazie"),
        ({"accept-language": "fr-FR, en;q=0.5"}, b"<!DOCTYPE html>", b"Merci"),
        ({"accept-language": "nl, en;q=0.5"}, b"<!DOCTYPE html>", b"Thank you"),
        ({"accept-language": "nl"}, b"<!DOCTYPE html>", b"Danke"),
        ({"accept": "text/html, application/json"}, b"<!DOCTYPE html>", b"Danke"),
        ({"accept": "application/json"}, b"{", b'"received"'),
    ],
)
async def test_form_is_answered_in_the_language_of_whoever_sent_it(
    tmp_path: Path, headers: dict[str, str | None], begins: bytes, holds: bytes
) -> None:
    async with open_lenient(tmp_path) as hub:
        answer = await post_form(hub, headers=headers)
        assert answer.status == 200 and answer.body.startswith(begins) and holds in answer.body
        assert answer.headers[b"access-control-allow-origin"] == b"*"
        if begins != b"{":
            assert answer.headers[b"content-security-policy"] == b"default-src 'none'"


async def test_thanks_hold_the_name_of_the_hotel_as_text(tmp_path: Path) -> None:
    async with open_lenient(tmp_path) as hub:
        name = '<script>alert("x")</script> & {hotel}'
        await add_hotel(hub.ctx.store, NewHotel(code="X", name=name))
        await add_source(hub.ctx, "X", "form", "form", PATH_SECRET)
        sent = {"x-webhook-secret": None, "content-type": "application/x-www-form-urlencoded"}
        path = f"/api/webhook/form/X/{PATH_SECRET}"
        answer = await hub.post(body=b"a=b", path=path, headers=sent)
        assert b"&lt;script&gt;" in answer.body and b"<script" not in answer.body
        assert b"{hotel}" in answer.body
