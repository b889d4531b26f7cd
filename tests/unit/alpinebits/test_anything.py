"""Whatever a client sends, it gets an answer: a reader takes it or raises TransportError, nothing
else.
"""

from __future__ import annotations

import contextlib
import gzip
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.examples import examples

from alpinehub.alpinebits.actions.handshake import ECHO, intersect
from alpinehub.alpinebits.actions.read import READ_REQUEST
from alpinehub.alpinebits.document import parse
from alpinehub.alpinebits.handshake_json import NoCapabilities
from alpinehub.alpinebits.large import READERS as LARGE
from alpinehub.alpinebits.protocol import PROTOCOLS
from alpinehub.alpinebits.reader import Reader, read_here
from alpinehub.alpinebits.transport import parse_form, unpack
from alpinehub.alpinebits.transport_error import TransportError

READERS: tuple[Reader[Any], ...] = (ECHO, READ_REQUEST, *LARGE.values())

MULTIPART = st.lists(
    st.sampled_from(
        [
            *(b"--B", b"\r\n", b"--", b"\r", b"\n", b"-", b"\r\n--B--\r\n", b"", b"x" * 40),
            *(b"Content-Disposition: form-data; name=", b'"action"', b'"request"', b"; filename="),
            *(b'"a;b"', b":", b"Content-Disposition", b"\xff\x00", b"name*=utf-8''x", b";"),
        ]
    ),
    max_size=30,
).map(b"".join)
XML = st.lists(
    st.sampled_from(
        [
            *("<a>", "</a>", "<a/>", "<", ">", "&amp;", "&#0;", "&x;", "<!DOCTYPE a>", "<!--"),
            *("-->", "<?xml version='1.0'?>", "<![CDATA[", "]]>", " xmlns='u'", "<x:a", "ä"),
            *("\x00", "=", "'"),
            '<OTA_PingRQ xmlns="http://www.opentravel.org/OTA/2003/05" Version="1">',
            *("<EchoData>", "</EchoData>", "</OTA_PingRQ>", '{"versions":[]}'),
        ]
    ),
    max_size=20,
).map("".join)


@given(
    body=MULTIPART | st.binary(max_size=200), boundary=st.sampled_from(["B", '"B"', "\xff", '"'])
)
def test_form_reader_takes_or_refuses(body: bytes, boundary: str) -> None:
    for kind in (f"multipart/form-data; boundary={boundary}", "application/x-www-form-urlencoded"):
        with contextlib.suppress(TransportError):
            parse_form(kind, body)


@given(content_type=st.text(max_size=60) | st.from_regex(r"multipart/form-data;.*"))
def test_form_reader_takes_or_refuses_any_type(content_type: str) -> None:
    header = content_type.encode("latin-1", "replace").decode("latin-1")
    with contextlib.suppress(TransportError):
        parse_form(header, b"--B\r\n\r\n--B--")


@given(body=st.binary(max_size=100), cut=st.integers(0, 60))
def test_unpacking_takes_or_refuses(body: bytes, cut: int) -> None:
    for packed in (body, gzip.compress(body)[:cut], gzip.compress(body) + body):
        with contextlib.suppress(TransportError):
            unpack(packed, "gzip")


@settings(max_examples=examples(60), deadline=None)
@given(document=XML.map(str.encode) | st.binary(max_size=100))
@example(document=b"<?xml version='1.0' encoding='utf-16'?><a/>")
def test_document_reader_takes_or_refuses(document: bytes) -> None:
    with contextlib.suppress(TransportError):
        parse(document)
    for protocol in PROTOCOLS.values():
        for reader in READERS:
            with contextlib.suppress(TransportError):
                read_here(document, protocol, reader)


@given(echo=st.text(max_size=60) | st.text(st.sampled_from('{}[]":,versions&quot;'), max_size=60))
def test_handshake_answers_or_says_no(echo: str) -> None:
    with contextlib.suppress(NoCapabilities):
        intersect(echo, {})
