"""Mails as bytes, and what the server's answers mean."""

from __future__ import annotations

from datetime import UTC, datetime
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cordata.core.inline_image import InlineImage, check_inline_images
from cordata.errors import PermanentError
from cordata.mail.message import address, delivery_result, mime_message

AT = datetime(2026, 3, 1, 7, 0, tzinfo=UTC)


def build(**changes: Any) -> bytes:
    row: dict[str, Any] = {
        "message_id": "<a.b@host>",
        "sender": "cordata@localhost",
        "to": ["front@hotel.example"],
        "subject": "Report",
        "text": "Hello",
        "html": None,
        "date": AT,
    }
    return mime_message(**(row | changes))


def parsed(data: bytes) -> EmailMessage:
    return message_from_bytes(data, policy=policy.default)


def test_message_has_its_headers_and_both_bodies_when_html_is_given() -> None:
    mail = parsed(build(subject="Anfragen für Samstag ☀", text="Grüße", html="<p>Grüße</p>"))
    assert mail["Subject"] == "Anfragen für Samstag ☀"
    assert mail["Message-ID"] == "<a.b@host>"
    assert mail["Auto-Submitted"] == "auto-generated"
    assert mail["Date"] == "Sun, 01 Mar 2026 07:00:00 +0000"
    assert mail["To"] == "front@hotel.example"
    text, html = mail.get_body(("plain",)), mail.get_body(("html",))
    assert text is not None and text.get_content() == "Grüße\r\n"
    assert html is not None and html.get_content() == "<p>Grüße</p>\r\n"
    assert mail.get_content_type() == "multipart/alternative"


def test_message_shows_a_picture_beside_its_html() -> None:
    picture = InlineImage("chart", "image/png", bytes(range(256)))
    mail = parsed(build(html='<img src="cid:chart">', inline=[picture]))
    text, html = mail.get_body(("plain",)), mail.get_body(("html",))
    assert text is not None and text.get_content() == "Hello\r\n"
    assert html is not None and "cid:chart" in html.get_content()
    [part] = [part for part in mail.walk() if part.get_content_type() == "image/png"]
    assert part["Content-ID"] == "<chart>"
    assert part.get_content_disposition() == "inline"
    assert part.get_content() == picture.data
    assert mail.get_content_type() == "multipart/alternative"


@pytest.mark.parametrize(
    "picture",
    [
        InlineImage("a>b", "image/png", b""),
        InlineImage("a", "text/html", b""),
        InlineImage("", "", b""),
    ],
)
def test_picture_needs_a_name_and_type_that_a_header_can_have(picture: InlineImage) -> None:
    with pytest.raises(PermanentError, match="inline image"):
        check_inline_images([picture])


def test_message_is_seven_bit_with_short_lines_when_its_text_is_not() -> None:
    data = build(text="é" * 5000 + "\n.\nFrom here", subject="ü" * 300)
    assert data.isascii()
    assert max(map(len, data.split(b"\r\n"))) <= 998
    assert b"\n" not in data.replace(b"\r\n", b"")


@settings(max_examples=25)
@given(st.text(max_size=60), st.text(max_size=20))
def test_no_header_can_be_injected_whatever_subject_and_name_hold(subject: str, name: str) -> None:
    if set("<>") & set(name) or not (subject + name).isprintable():
        subject, name = f"{subject}\r\nBcc: x@y", name.translate({60: None, 62: None})
    try:
        data = build(
            subject=subject.encode("utf-8", "replace").decode(),
            to=[f"{name.encode('utf-8', 'replace').decode()}\r\nBcc: x@y <front@hotel.example>"],
        )
    except PermanentError:
        return
    mail = parsed(data)
    assert mail["Bcc"] is None
    assert sorted(mail.keys()) == sorted(
        {
            "From",
            "To",
            "Subject",
            "Date",
            "Message-ID",
            "Auto-Submitted",
            "Content-Type",
            "Content-Transfer-Encoding",
            "MIME-Version",
        }
    )


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "nobody",
        "a@b@c",
        "a b@c",
        "a@b\r\nBcc: x@y",
        "a@b>\r\nRCPT TO:<x@y",
        "<a@b> c@d",
        "jürgen@example.com",
        "a@" + "ü" * 300,
    ],
)
def test_address_is_refused_when_malformed(bad: str) -> None:
    with pytest.raises(PermanentError):
        address(bad)


def test_address_is_bare_and_ascii_when_named_or_international() -> None:
    assert address("Hotel <a@b.example>") == "a@b.example"
    assert address("a@müller.example") == "a@xn--mller-kva.example"


def test_message_is_refused_when_message_id_is_malformed() -> None:
    for bad in ("", "a@b", "<a@b", "<a b@c>", "<a@b>\r\nBcc: x@y"):
        with pytest.raises(PermanentError):
            build(message_id=bad)


def test_recipients_are_sorted_by_reply_code() -> None:
    result = delivery_result(["a", "b", "c", "d"], {"b": 451, "c": 550, "d": 450})
    assert list(result.remaining) == ["b", "d"]
    assert (result.accepted_count, result.refused_count) == (1, 1)
    assert list(result.codes) == [450, 451, 550]


@pytest.mark.parametrize(
    "to", ["eva@ex..de", "eva@.de", "eva@x.de.", "e..va@x.de", ".eva@x.de", "Eva <eva.@x.de>"]
)
def test_message_is_refused_without_quoting_an_address_that_only_looks_like_one(to: str) -> None:
    """The standard library's own errors are of several kinds, and one is no ValueError."""
    with pytest.raises(PermanentError) as caught:
        build(to=[to])
    assert str(caught.value) == "not an e-mail address"
    assert caught.value.__suppress_context__
