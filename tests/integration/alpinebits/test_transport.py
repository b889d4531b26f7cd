from __future__ import annotations

import base64
import gzip
import zlib
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlencode

import httpx
import pytest
from lxml import etree
from tests.integration.alpinebits import material
from tests.integration.alpinebits.hub import PASSWORD, Hub, error_of, open_hub, read_rq

from alpinehub import login
from alpinehub.alpinebits.call import Call
from alpinehub.alpinebits.concurrency_limit import MAX_BODIES, limit_of
from alpinehub.alpinebits.document import LARGE_BYTES, MAX_BODY_BYTES
from alpinehub.alpinebits.outcome import Finding, Outcome
from alpinehub.alpinebits.protocol import PROTOCOLS
from alpinehub.models import Account
from cordata import StoreUnavailable, request_id

URL = "/api/alpinebits"
VERSION_HEADER = "X-AlpineBits-ClientProtocolVersion"
READ = "OTA_Read:GuestRequests"
AUTH = httpx.BasicAuth("u1", PASSWORD)


async def send(
    hub: Hub,
    body: bytes,
    content_type: str = "multipart/form-data; boundary=B",
    *,
    auth: httpx.Auth | None = AUTH,
    version: str = "2024-10",
    **headers: str,
) -> httpx.Response:
    given = {"Content-Type": content_type, VERSION_HEADER: version}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    return await hub.client.post(URL, content=body, headers=given, auth=auth or httpx.Auth())


def body(action: str = READ, request: str | None = None) -> bytes:
    parts = {"action": action, "request": read_rq("H1") if request is None else request}
    text = "".join(
        f'--B\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in parts.items()
    )
    return f"{text}--B--\r\n".encode()


def assert_error(response: httpx.Response, status: int, text: str = "") -> None:
    assert response.status_code == status, response.text
    assert response.headers["content-type"].startswith("text/plain")
    assert response.text.startswith(f"ERROR:{text}")
    assert response.headers["x-alpinebits-server-accept-encoding"] == "gzip"


async def test_credentials_are_asked_for_when_missing_wrong_or_malformed(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        text = "invalid or missing username/password"
        wrong = [httpx.BasicAuth("u1", "x"), httpx.BasicAuth("u9", PASSWORD), None]
        for auth in wrong:
            response = await send(hub, body(), auth=auth)
            assert_error(response, 401, text)
            assert response.headers["www-authenticate"].startswith("Basic ")
        for header in ("Basic", "Basic !!", "Basic dTE=", "Bearer x", "Basic " + "A" * 999, "Ä"):
            authorization = {"Authorization": header.encode()}
            given = {"Content-Type": "multipart/form-data; boundary=B", VERSION_HEADER: "2024-10"}
            response = await hub.client.post(URL, content=body(), headers=given | authorization)  # type: ignore[arg-type]
            assert_error(response, 401, text)


async def test_password_is_taken_when_it_is_latin1(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        token = base64.b64encode(f"u1:{PASSWORD}".encode("latin-1")).decode()
        response = await send(hub, body(), auth=None, Authorization=f"basic  {token}")
        assert response.status_code == 200


async def test_version_is_checked(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        given = {"Content-Type": "multipart/form-data; boundary=B"}
        response = await hub.client.post(URL, content=body(), headers=given, auth=AUTH)
        assert_error(response, 400)
        text = "your current alpinebits version does not match one of the servers supported"
        for version in ("2030-10", "2011-11", "latest", "2024"):
            response = await send(hub, body(), version=version)
            assert_error(response, 400, text)


async def test_first_value_counts_when_a_header_is_repeated(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        given = [("Content-Type", "multipart/form-data; boundary=B")]
        given += [(VERSION_HEADER, "2024-10"), (VERSION_HEADER, "1999-10")]
        answer = await hub.client.post(URL, content=body(), headers=given, auth=AUTH)
        assert answer.status_code == 200


async def test_action_is_checked_case_sensitively(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        for action in ("", "ota_read:guestrequests", "OTA_HotelAvailNotif:FreeRooms", "x" * 500):
            response = await send(hub, body(action))
            assert_error(response, 400, "unknown or missing action")
        no_action = b'--B\r\nContent-Disposition: form-data; name="x"\r\n\r\n\r\n--B--\r\n'
        assert_error(await send(hub, no_action), 400, "unknown or missing action")


async def test_request_is_taken_as_field_file_and_urlencoded(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        await hub.add(1, "a1")
        file = ("request.xml", read_rq("H1").encode(), "text/xml")
        given = {VERSION_HEADER: "2024-10", "X-AlpineBits-ClientID": "tester"}
        for kind in (
            {"files": {"action": (None, READ), "request": (None, read_rq("H1"))}},
            {"files": {"other": (None, "1"), "action": (None, READ), "request": file}},
            {"files": {"request": file}, "data": {"action": READ}},
            {"data": {"action": READ, "request": read_rq("H1")}},
        ):
            response = await hub.client.post(URL, headers=given, auth=AUTH, **kind)
            assert response.status_code == 200, response.text
            assert b'ID="a1"' in response.content
        quoted = 'Multipart/Form-Data; charset=utf-8; Boundary="B"'
        assert b'ID="a1"' in (await send(hub, body(), quoted)).content


async def test_other_methods_and_paths_are_refused_in_the_form_of_the_protocol(
    tmp_path: Path,
) -> None:
    async with open_hub(tmp_path) as hub:
        for method in ("GET", "HEAD", "PUT"):
            response = await hub.client.request(method, URL)
            assert response.status_code == 405 and response.headers["allow"] == "POST"
        assert_error(await hub.client.get(URL), 405)
        assert_error(await hub.client.post(f"{URL}/other"), 404)
        assert_error(await hub.client.post(f"{URL}/"), 401)  # a slash at the end is the endpoint


async def test_body_that_is_no_form_is_refused(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        for kind in ("", "text/xml", "application/json", "multipart/mixed"):
            assert_error(await send(hub, body(), kind), 415)
        for boundary in ("", "; boundary=", "; boundary=other", f"; boundary={'x' * 300}"):
            assert_error(await send(hub, body(), f"multipart/form-data{boundary}"), 400)
        assert_error(await send(hub, b""), 400)
        assert_error(await send(hub, body()[:-5]), 400)
        only_action = body().split(b'--B\r\nContent-Disposition: form-data; name="request"')[0]
        assert_error(await send(hub, only_action + b"--B--\r\n"), 400, "the field request")


async def test_form_that_is_good_but_for_one_part_is_refused(tmp_path: Path) -> None:
    part = b'--B\r\nContent-Disposition: form-data; name="%b"\r\n\r\nx\r\n'
    other, action = part % b"other", part % b"action"
    async with open_hub(tmp_path) as hub:
        for broken, text in (
            (action, "the form has two fields named action"),
            (b"".join(part % b"f%d" % at for at in range(50)), "the form has too many parts"),
            (other.replace(b'; name="other"', b""), "a part of the form has no name"),
            (other.replace(b"Content-Disposition: form-data", b"Bad Header: x"), "the multipart"),
            # Some parsers have lower bounds of their own.
            (other.replace(b'"other"', b'"other"\r\nX-Long: ' + b"y" * 9000), "the "),
        ):
            assert_error(await send(hub, broken + body()), 400, text)
        form = urlencode({"action": READ, "request": read_rq("H1")}).encode()
        for pairs, text in ((b"a=1&" * 1000, "too many parts"), (b"action=1&", "two fields")):
            kind = "application/x-www-form-urlencoded"
            assert_error(await send(hub, pairs + form, kind), 400, f"the form has {text}")


async def test_body_may_be_packed(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        await hub.add(1, "a1")
        packed = gzip.compress(body())
        for encoding, sent in (("gzip", packed), ("GZIP", packed), ("identity", body())):
            response = await send(hub, sent, Content_Encoding=encoding)
            assert b'ID="a1"' in response.content
        for broken in (b"", body(), packed[:-9], packed + b"y", zlib.compress(body())):
            assert_error(await send(hub, broken, Content_Encoding="gzip"), 400)
        for encoding in ("br", "deflate", "gzip, gzip"):
            assert_error(await send(hub, packed, Content_Encoding=encoding), 415)
        for size in (MAX_BODY_BYTES + 1, 50_000_000):
            bomb = gzip.compress(b"\0" * size)
            assert_error(await send(hub, bomb, Content_Encoding="gzip"), 413)


async def test_body_that_is_large_only_when_it_is_unpacked_waits_its_turn(tmp_path: Path) -> None:
    large = body(request="".join(f"{at:09}" for at in range(LARGE_BYTES // 8)))
    packed = gzip.compress(large)
    assert len(packed) < LARGE_BYTES < len(large)
    async with open_hub(tmp_path) as hub:
        with ExitStack() as held:
            for account_id in range(MAX_BODIES):  # others
                allocation = held.enter_context(limit_of(hub.ctx).body(-account_id))
                assert allocation.grow_to(MAX_BODY_BYTES)
            assert_error(await send(hub, packed, Content_Encoding="gzip"), 503, "too many large")
            assert (await send(hub, body())).status_code == 200
        for _ in range(MAX_BODIES + 1):  # each gives its turn back
            assert_error(await send(hub, packed, Content_Encoding="gzip"), 413)


async def test_body_is_refused_when_it_is_too_large(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        response = await send(hub, body(request="x" * MAX_BODY_BYTES))
        assert_error(response, 413)


@pytest.mark.parametrize(
    "document",
    [
        "",
        "not xml",
        "<a>" * 50 + "</a>" * 50,
        '<!DOCTYPE a [<!ENTITY e SYSTEM "file:///etc/passwd">]><a>&e;</a>',
        "<OTA_ReadRQ/>",
        read_rq("H1").replace("Version=", "Vers="),
        read_rq("H1").replace("<ReadRequests>", "<Invalid/><ReadRequests>"),
        read_rq("H1", "2026-02-30T00:00:00Z"),
        read_rq("x" * 17),
    ],
)
async def test_document_is_refused_when_it_breaks_xml_or_schema(
    tmp_path: Path, document: str
) -> None:
    async with open_hub(tmp_path) as hub:
        assert_error(await send(hub, body(request=document)), 400)


async def test_document_of_another_action_is_refused(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        assert_error(await send(hub, body("OTA_NotifReport:GuestRequests")), 400)
        assert_error(await send(hub, body("OTA_Ping:Handshaking")), 400)


@pytest.mark.parametrize("version", ["2020-10", "2024-10"])
async def test_handshake_answers_a_sample_whatever_version_the_header_names(
    tmp_path: Path, version: str
) -> None:
    async with open_hub(tmp_path) as hub:
        document = material.message(version, "Handshake-OTA_PingRQ.xml")
        for name in (*PROTOCOLS, "2030-10", "2015-07b"):
            response = await hub.post("u1", "OTA_Ping:Handshaking", document, name)
            assert response.status_code == 200
            assert "ALPINEBITS_HANDSHAKE" in response.text
            echo = etree.fromstring(response.content)[-1].text
            assert echo == etree.fromstring(document)[0].text
            for known in [*PROTOCOLS][1:]:
                assert material.problems(response.content, known) == []
        response = await hub.post("u1", "OTA_Ping:Handshaking", document, "nonsense")
        assert_error(response, 400)


async def test_handshake_is_an_error_when_echo_data_is_not_its_json(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_hub(tmp_path) as hub:
        document = material.message("2024-10", "Handshake-OTA_PingRQ.xml")
        start, end = document.index(b"<EchoData>") + 10, document.index(b"</EchoData>")
        response = await hub.post(
            "u1", "OTA_Ping:Handshaking", document[:start] + b"hello" + document[end:]
        )
        assert error_of(response) == ("13", "320")
        assert material.problems(response.content, "2024-10") == []
    assert told(caplog) == [(320, "")]


async def test_error_with_status_200_has_a_line_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_hub(tmp_path) as hub:
        with_id = request_id.set("r-1")
        response = await hub.post("u1", READ, read_rq("NOPE"))
        request_id.reset(with_id)
        assert (response.status_code, error_of(response)) == (200, ("13", "392"))
    assert told(caplog) == [(392, "r-1")]


async def test_parser_of_forms_has_no_line_of_its_own_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_hub(tmp_path) as hub:
        assert_error(await send(hub, b"--B\r\nBad Header: x\r\n\r\n--B--\r\n"), 400)
    assert [one for one in caplog.records if one.name.startswith("python_multipart")] == []


def test_many_errors_are_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    call = Call(
        ctx=None,  # type: ignore[arg-type] # nothing is asked of it
        account=Account(id=1, name="u1", hotels=()),
        protocol=PROTOCOLS["2024-10"],
        client_id="",
        network="",
        action="OTA_HotelRatePlanNotif:RatePlans",
        data=None,
    )
    notes = [Finding(kind="error", code=450 + at, text=f"wrong {at}") for at in range(8)]
    answer = call.respond(Outcome(tuple(notes)))
    assert answer.count(b"<Error ") == 8
    assert told(caplog) == [(450, "")]
    [line] = [one.getMessage() for one in caplog.records]
    assert line.endswith(
        "error 450: wrong 0; 451: wrong 1; 452: wrong 2; 453: wrong 3; 454: wrong 4; and 3 more"
    )


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    """The OTA codes in the log, each with its request id."""
    lines = [record.__dict__ for record in caplog.records if hasattr(record, "OTA_CODE")]
    return [(line["OTA_CODE"], line.get("REQUEST_ID", "")) for line in lines]


async def test_failure_is_told_as_a_transport_error(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        await hub.add(1, "a1")
        await hub.execute("DROP TABLE reservation_version")
        response = await hub.post("u1", READ, read_rq("H1"))
        assert response.status_code in (500, 503)
        assert response.text.startswith("ERROR:")
        assert "sql" not in response.text.lower()


async def test_store_that_is_away_is_told_with_a_time_to_try_again(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        await hub.add(1, "a1")

        async def away(unit: object) -> object:
            raise StoreUnavailable("disk", retry_after_s=7)

        store = hub.ctx.store
        store.run, run = away, store.run  # type: ignore[method-assign,assignment]
        response = await hub.post("u1", READ, read_rq("H1"))
        store.run = run  # type: ignore[method-assign]
        assert_error(response, 503)
        assert response.headers["retry-after"] == "7"
        assert await hub.read("u1", "H1") == ["a1"]


async def test_login_is_told_to_come_again_when_too_many_passwords_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_hub(tmp_path) as hub:
        await hub.add(1, "a1")
        monkeypatch.setattr(login, "MAX_WAITING", 0)
        response = await hub.post("u1", READ, read_rq("H1"))
        assert_error(response, 429)
        assert int(response.headers["retry-after"]) > 0
        monkeypatch.undo()
        assert await hub.read("u1", "H1") == ["a1"]
