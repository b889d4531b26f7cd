"""The poll measurement: what it reads is what waits, and it compares the answers of the two sides.

The peer needs packages that the tests have not; the bench itself checks its answer.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.bench.poll import HOTELS, WAITING, codes, content, prepare, read, request_file
from tests.bench.servers import hub


def answer(*, ident: str, at: str, guest: str = "Eva", code: str = "A") -> bytes:
    return (
        f'<?xml version="1.0"?><R xmlns="urn:ota"><HotelReservation CreateDateTime="{at}" '
        f'ResStatus="Requested"><UniqueID Type="14" ID="{ident}"/><Name>{guest}</Name>'
        f'<Hotel b="1" Code="{code}"/></HotelReservation></R>'
    ).encode()


def test_answers_are_equal_but_for_ids_and_times() -> None:
    first = answer(ident="1", at="2027-01-01T00:00:00+00:00")
    assert content(first) == content(answer(ident="2", at="2028-01-01T00:00:00+00:00"))
    assert content(first) != content(answer(ident="1", at="", guest="Ada"))
    assert content(first) != content(answer(ident="1", at="", code="B"))


def test_polls_leave_all_requests_waiting(tmp_path: Path) -> None:
    with hub(tmp_path, workers=2) as running:
        first = prepare(running, tmp_path, hotels=2)
        again = asyncio.run(read(int(running.url.rpartition(":")[2]), codes(2)[0]))
    assert len(content(first)) == WAITING
    assert content(again) == content(first)


def test_requests_of_all_hotels_are_in_the_file(tmp_path: Path) -> None:
    least, *requests = request_file(tmp_path, b"a" * 100).read_bytes().split(b"\0")
    assert least == b"90"
    assert len(requests) == HOTELS
    for code, one in zip(codes(), requests, strict=True):
        head, _, body = one.partition(b"\r\n\r\n")
        assert head.startswith(b"POST /api/alpinebits ")
        assert b"Content-Length: %d" % len(body) in head
        assert f'HotelCode="{code}"'.encode() in body
