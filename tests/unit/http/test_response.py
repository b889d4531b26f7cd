"""Response heads: framing is ours, fields are checked."""

from __future__ import annotations

import pytest

from cordata.http.parser import bad_request
from cordata.http.response import ResponseHead, date_line, error_response

TAIL = date_line(0) + b"x-request-id: r1\r\n"


def encode(
    status: int = 200,
    headers: tuple[tuple[bytes, bytes], ...] = (),
    *,
    method: str = "GET",
    version: str = "1.1",
    keep_alive: bool = True,
    body_bytes: int | None = 5,
) -> tuple[bytes, ResponseHead]:
    head = ResponseHead(status, headers)
    encoded = head.encode(
        method=method,
        version=version,
        keep_alive=keep_alive,
        body_bytes=body_bytes,
        extra_lines=TAIL,
    )
    return encoded, head


def test_head_has_status_fields_and_ours() -> None:
    encoded, _ = encode(201, ((b"X-A", b"1"),))
    assert encoded == (
        b"HTTP/1.1 201 Created\r\nX-A: 1\r\ncontent-length: 5\r\nserver: cordata\r\n"
        b"date: Thu, 01 Jan 1970 00:00:00 GMT\r\nx-request-id: r1\r\n\r\n"
    )


def test_head_is_chunked_when_the_length_is_unknown() -> None:
    encoded, head = encode(body_bytes=None)
    assert head.chunked and b"transfer-encoding: chunked\r\n" in encoded
    assert b"content-length" not in encoded


def test_head_closes_when_http10_has_no_length() -> None:
    encoded, head = encode(body_bytes=None, version="1.0")
    assert head.close and not head.chunked
    assert encoded.endswith(b"connection: close\r\n\r\n")


def test_head_says_keep_alive_to_http10() -> None:
    assert encode(version="1.0")[0].endswith(b"connection: keep-alive\r\n\r\n")


@pytest.mark.parametrize("status", [204, 304])
def test_head_has_no_body_when_the_status_forbids_one(status: int) -> None:
    encoded, head = encode(status, body_bytes=None)
    assert head.bodyless and not head.chunked
    assert b"transfer-encoding" not in encoded


def test_head_drops_the_length_of_204_and_keeps_that_of_304() -> None:
    fields = ((b"content-length", b"7"),)
    assert b"content-length" not in encode(204, fields)[0]
    assert b"content-length: 7\r\n" in encode(304, fields)[0]


def test_head_keeps_the_length_when_the_method_is_head() -> None:
    encoded, head = encode(headers=((b"content-length", b"70"),), method="HEAD", body_bytes=0)
    assert head.bodyless and b"content-length: 70\r\n" in encoded
    assert b"content-length" not in encode(method="HEAD", body_bytes=0)[0]


def test_head_takes_date_and_server_of_the_application() -> None:
    encoded, _ = encode(headers=((b"date", b"today"), (b"server", b"mine")))
    assert encoded.count(b"date: ") == 1 and b"date: today\r\n" in encoded
    assert encoded.count(b"server: ") == 1 and b"x-request-id: r1" in encoded


def test_head_replaces_hop_by_hop_fields() -> None:
    fields = (
        (b"transfer-encoding", b"chunked"),
        (b"connection", b"keep-alive, x"),
        (b"keep-alive", b"timeout=5"),
        (b"x-request-id", b"forged"),
    )
    encoded, _ = encode(headers=fields)
    assert b"transfer-encoding" not in encoded and b"onnection" not in encoded
    assert b"keep-alive" not in encoded and b"forged" not in encoded


def test_head_closes_when_the_application_says_so() -> None:
    encoded, head = encode(headers=((b"Connection", b"Close"),))
    assert head.close and encoded.endswith(b"connection: close\r\n\r\n")


@pytest.mark.parametrize(
    "field",
    [
        (b"x", b"a\r\nset-cookie: b"),
        (b"x", b"a\nb"),
        (b"x", b"a\rb"),
        (b"x", b"a\0b"),
        (b"x", b"long" * 50 + b"\r\n\r\n"),
        (b"x y", b"a"),
        (b"x\r\n", b"a"),
        (b"", b"a"),
        (b"x:", b"a"),
        (b"location", b"/\r\nx: y"),
        (b"date", b"a\r\nb"),
        (b"content-length", b"5\r\n"),
        (b"content-length", b"-5"),
        (b"content-length", b""),
    ],
)
def test_head_is_refused_when_a_field_would_split_it(field: tuple[bytes, bytes]) -> None:
    with pytest.raises(ValueError, match=r"header|Content-Length"):
        ResponseHead(200, [field])


@pytest.mark.parametrize("status", [0, 99, 100, 101, 199, 1000, -1])
def test_head_is_refused_when_the_status_is_not_final(status: int) -> None:
    with pytest.raises(ValueError, match="status"):
        ResponseHead(status, [])


def test_head_is_refused_when_lengths_differ() -> None:
    with pytest.raises(ValueError, match="Content-Length"):
        ResponseHead(200, [(b"content-length", b"1"), (b"content-length", b"2")])


def test_error_response_has_no_body_when_the_method_is_head() -> None:
    refused = bad_request("no")
    assert error_response(refused, "r1", "HEAD", date_line(0)).endswith(b"close\r\n\r\n")
    body = error_response(refused, "r1", "GET", date_line(0)).partition(b"\r\n\r\n")[2]
    assert body == b'{"error": "bad_request", "message": "no", "request_id": "r1"}\n'
