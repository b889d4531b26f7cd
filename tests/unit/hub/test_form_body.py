"""One reader of forms for browsers and for hotel software."""

from __future__ import annotations

from contextlib import suppress

import pytest

from alpinehub.form_body import Broken, Part, media_type, read_parts

TYPE = 'multipart/form-data; boundary="B"'
URLENCODED = "application/x-www-form-urlencoded; charset=UTF-8"
END = b"--B--\r\n"


def part(disposition: bytes, data: bytes = b"x", more: bytes = b"") -> bytes:
    return b"--B\r\nContent-Disposition: " + disposition + more + b"\r\n\r\n" + data + b"\r\n"


def test_parts_come_in_their_order_with_what_they_are() -> None:
    body = (
        part(b'form-data; name="a"', b"1\r\n--no boundary\r\n")
        + part(b'form-data; name="a"', b"")
        + part(b'FORM-DATA; name="f"; filename=""', b"\x00\xff", b"\r\nContent-Type: text/xml")
        + part(b"form-data")
        + part(b'attachment; name="b"')
    )
    assert read_parts(body + END, TYPE, most=5) == [
        Part(b"a", b"1\r\n--no boundary\r\n", False),
        Part(b"a", b"", False),
        Part(b"f", b"\x00\xff", True),
        Part(None, b"x", False),
        Part(None, b"x", False),
    ]


def test_urlencoded_pairs_are_parts() -> None:
    body = b"a=1&a=&b+c=x%3D+%C3%A4%zz&&=y&d"
    assert [(part.name, part.data) for part in read_parts(body, URLENCODED, most=7)] == [
        *((b"a", b"1"), (b"a", b""), (b"b c", b"x= \xc3\xa4%zz"), (b"", b"y"), (b"d", b"")),
    ]


@pytest.mark.parametrize(
    ("content_type", "body", "fault"),
    [
        ("multipart/form-data", END, "no_boundary"),
        (f"multipart/form-data; boundary={'B' * 257}", END, "no_boundary"),
        (TYPE, b"no boundary", "malformed"),
        (TYPE, b"--B\r\nBad Header: x\r\n\r\n" + END, "malformed"),
        (TYPE, b"", "cut_off"),
        (TYPE, part(b'form-data; name="a"'), "cut_off"),
        (TYPE, part(b'form-data; name="a"') * 4 + END, "too_many_parts"),
        (URLENCODED, b"a=1&a=2&a=3&", "too_many_parts"),
    ],
)
def test_body_is_refused_with_the_reason(content_type: str, body: bytes, fault: str) -> None:
    with pytest.raises(Broken) as caught:
        read_parts(body, content_type, most=3)
    assert caught.value.fault == fault


@pytest.mark.parametrize(
    "body",
    [
        part(b'form-data; name="%b"' % (b"q" * 8192)),
        part(b"form-data", more=b"\r\nX: y" * 3000),
    ],
    ids=["name", "many"],
)
def test_body_is_refused_when_a_part_has_large_headers(body: bytes) -> None:
    with pytest.raises(Broken) as caught:
        read_parts(body + END, TYPE, most=1)
    # Newer parsers have bounds of their own, which are lower.
    assert caught.value.fault in ("large_headers", "malformed")


def test_media_type_is_what_stands_before_the_parameters() -> None:
    assert media_type(" Multipart/Form-Data ; boundary=x") == "multipart/form-data"
    assert media_type("") == ""


def test_parameter_with_a_number_of_many_digits_ends_in_no_other_error() -> None:
    """Only some versions of the parser read it, by RFC 2231; the others ignore it."""
    many = "9" * 5000
    for content_type, name in ((TYPE, f'; name*{many}="a"'), (f"{TYPE}; name*{many}=a", "")):
        with suppress(Broken):
            read_parts(part(b"form-data" + name.encode()) + END, content_type, most=3)
