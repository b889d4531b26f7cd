"""Whatever a server answers, it is read or refused, and nothing else happens."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.examples import examples

from alpinehub.alpinebits.document import NAMESPACE
from alpinehub.alpinebits.protocol import PROTOCOLS
from alpinehub.alpinebits_client.http import HttpResponse, RequestFailed, read_body, read_head
from alpinehub.alpinebits_client.reply import read_reply
from alpinehub.push.delivery import PushFailed, read_answer

_SENT = [("14", "a" * 32), ("15", "b" * 32)]
_ROOT = f'<OTA_HotelResNotifRS xmlns="{NAMESPACE}" Version="1.000">'
BODIES = st.binary(max_size=200) | st.lists(
    st.sampled_from(
        [
            *(_ROOT, "</OTA_HotelResNotifRS>", "<Success/>", "<Errors>", "</Errors>"),
            *("<Warnings>", "</Warnings>", "<HotelReservations>", "</HotelReservations>"),
            *("<HotelReservation>", "</HotelReservation>", "<x:y>", "<!DOCTYPE a>", "<a", "&x;"),
            '<Warning Type="3" Code="450" RecordID="' + "a" * 32 + '">nein</Warning>',
            '<Warning Type="&#56;" RecordID="">',
            '<UniqueID Type="14" ID="' + "a" * 32 + '"/>',
            '<UniqueID Type="99999999999999999999" ID="x"/>',
            '<UniqueID Type="x"/>',
            '<Error Type="13" Code="392">Muster</Error>',
            *("ERROR:", "<html>", "\ufeff", "<?xml version='1.0' encoding='utf-16'?>"),
        ]
    ),
    max_size=12,
).map(lambda parts: "".join(parts).encode())


@settings(deadline=None, max_examples=examples(300))
@given(
    body=BODIES, status=st.sampled_from([200, 204, 302, 400, 401, 500, 999]),
    protocol=st.sampled_from(["2018-10", "2022-10", "2024-10"]),
)  # fmt: skip
@example(body=b"<a>" * 100_000, status=200, protocol="2024-10")
def test_answer_to_a_push_names_what_was_sent_or_fails(
    body: bytes, status: int, protocol: str
) -> None:
    answer = HttpResponse(status=status, headers={}, body=body, took_ms=1)
    try:
        told = read_answer(answer, _SENT)
    except PushFailed as failed:
        assert "Muster" not in str(failed) and len(str(failed)) < 200
    else:
        assert set(told.accepted) <= set(_SENT)
        assert set(told.rejected) <= {unique_id for _, unique_id in _SENT}
        assert status == 200
    reply = read_reply(answer, "OTA_HotelResNotifRS", PROTOCOLS[protocol])
    assert (reply.root is None) <= bool(reply.text)


HEADS = st.lists(
    st.sampled_from(
        [
            *(
                b"HTTP/1.1 200 OK\r\n",
                b"HTTP/1.1 100 Go\r\n",
                b"HTTP/9 x\r\n",
                b"\r\n",
                b"\n",
                b"\r",
            ),
            *(b"Content-Length: 5\r\n", b"Content-Length: -1\r\n", b"content-length:\r\n"),
            *(b"Content-Length: 9\r\n", b"Transfer-Encoding: chunked\r\n", b"5\r\nhello\r\n"),
            *(b"0\r\n\r\n", b"fffffffffffffffff\r\n", b"+5\r\nhello\r\n", b"hello", b": \r\n"),
            *(b"a" * 70_000, b"\xff\x00", b"X" * 300 + b":\r\n"),
        ]
    ),
    max_size=10,
).map(b"".join)


@settings(deadline=None, max_examples=examples(300))
@given(data=HEADS | st.binary(max_size=100))
def test_bytes_of_an_answer_are_read_or_refused(data: bytes) -> None:
    async def read() -> None:
        reader = asyncio.StreamReader(limit=64 * 1024)
        reader.feed_data(data)
        reader.feed_eof()
        with suppress(RequestFailed, asyncio.IncompleteReadError):
            status, headers = await read_head(reader)
            body = await read_body(reader, headers, 1000)
            assert 200 <= status <= 999 and len(body) <= 1000

    asyncio.run(read())
