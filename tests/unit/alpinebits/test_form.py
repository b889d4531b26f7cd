from __future__ import annotations

import gzip
import zlib

import pytest

from alpinehub.alpinebits.document import MAX_BODY_BYTES
from alpinehub.alpinebits.transport import Form, parse_form, unpack
from alpinehub.alpinebits.transport_error import TransportError

TYPE = "multipart/form-data; boundary=xxBOUNDxx"


def part(name: str, value: bytes, extra: bytes = b"") -> bytes:
    head = b'--xxBOUNDxx\r\nContent-Disposition: form-data; name="%s"' % name.encode()
    return head + extra + b"\r\n\r\n" + value + b"\r\n"


END = b"--xxBOUNDxx--\r\n"
ACTION = part("action", b"OTA_Read:GuestRequests")


def refused(content_type: str, body: bytes) -> TransportError:
    with pytest.raises(TransportError) as caught:
        parse_form(content_type, body)
    return caught.value


def test_form_gives_both_fields_when_request_is_a_plain_field() -> None:
    body = ACTION + part("request", b"<a>\r\n--no boundary\r\n</a>") + END
    assert parse_form(TYPE, body) == Form("OTA_Read:GuestRequests", b"<a>\r\n--no boundary\r\n</a>")


def test_form_gives_both_fields_when_request_is_a_file() -> None:
    file = b'; filename="C:\\temp\\request.xml"\r\nContent-Type: text/xml'
    assert parse_form(TYPE, ACTION + part("request", b"<a/>", file) + END).request == b"<a/>"


def test_form_accepts_a_quoted_boundary_and_capitals_in_the_type() -> None:
    form = parse_form('Multipart/Form-Data; charset=utf-8; Boundary="xxBOUNDxx"', ACTION + END)
    assert form == Form("OTA_Read:GuestRequests", None)


def test_form_ignores_other_fields() -> None:
    assert parse_form(TYPE, part("foo", b"1") + ACTION + END).action == "OTA_Read:GuestRequests"


def test_form_accepts_urlencoded() -> None:
    body = b"action=OTA_Read%3AGuestRequests&request=%3Ca+b%3D%22%C3%A4%22%2F%3E"
    form = parse_form("application/x-www-form-urlencoded; charset=UTF-8", body)
    assert form == Form("OTA_Read:GuestRequests", '<a b="ä"/>'.encode())


@pytest.mark.parametrize("content_type", ["", "text/xml", "application/json", "multipart/mixed"])
def test_form_is_refused_when_the_type_is_not_a_form(content_type: str) -> None:
    assert refused(content_type, ACTION + END).status == 415


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no boundary at all",
        ACTION,
        ACTION + part("request", b"<a/>")[:-3],
        (ACTION + END)[:40],
        ACTION.replace(b"xxBOUNDxx", b"other") + b"--other--\r\n",
        part("action", b"a") + part("action", b"b") + END,
        b"--xxBOUNDxx\r\n\r\nno header\r\n" + END,
        b"--xxBOUNDxx\r\nContent-Disposition: form-data\r\n\r\nno name\r\n" + END,
        b"--xxBOUNDxx\r\nBad Header: x\r\n\r\n\r\n" + END,
        b"".join(part(f"f{i}", b"") for i in range(50)) + END,
        part("action", b"a", b"\r\nX-Long: " + b"y" * 9000) + END,
        part("action", b"a", b"".join(b"\r\nX-%d: y" % i for i in range(3000))) + END,
    ],
)
def test_form_is_refused_when_the_multipart_body_is_broken(body: bytes) -> None:
    assert refused(TYPE, body).status == 400


@pytest.mark.parametrize("boundary", ["", "; boundary=", "; boundary=" + "x" * 300])
def test_form_is_refused_when_the_boundary_is_missing_or_too_long(boundary: str) -> None:
    assert refused("multipart/form-data" + boundary, ACTION + END).status == 400


def test_form_is_refused_when_urlencoded_has_too_many_or_double_fields() -> None:
    kind = "application/x-www-form-urlencoded"
    assert refused(kind, b"&".join([b"a=1"] * 1000)).status == 400
    assert refused(kind, b"action=1&action=2").status == 400


def test_body_is_unpacked_when_it_is_gzip() -> None:
    assert unpack(gzip.compress(b"hello" * 10), "gzip") == b"hello" * 10
    assert unpack(gzip.compress(b""), " GZIP ") == b""
    assert unpack(b"plain", "") == unpack(b"plain", "identity") == b"plain"


@pytest.mark.parametrize("size", [MAX_BODY_BYTES + 1, 20_000_000])
def test_body_is_refused_when_it_unpacks_to_too_much(size: int) -> None:
    with pytest.raises(TransportError) as caught:
        unpack(gzip.compress(b"\0" * size), "gzip")
    assert caught.value.status == 413


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<xml/>",
        gzip.compress(b"x" * 99, mtime=0)[:-4],
        gzip.compress(b"x", mtime=0) + b"y",
        zlib.compress(b"x"),
    ],
)
def test_body_is_refused_when_it_is_not_one_whole_gzip_stream(body: bytes) -> None:
    with pytest.raises(TransportError) as caught:
        unpack(body, "gzip")
    assert caught.value.status == 400


@pytest.mark.parametrize("encoding", ["br", "deflate", "gzip, gzip"])
def test_body_is_refused_when_the_encoding_is_unknown(encoding: str) -> None:
    with pytest.raises(TransportError) as caught:
        unpack(b"x", encoding)
    assert caught.value.status == 415
