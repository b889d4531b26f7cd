"""Cutting a stream into frames: any cutting of the same bytes gives the same frames."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cordata.core.frame import HEAD, HOPELESS, PREFIX, Splitter, TooLarge, head_of, pack
from cordata.errors import ProtocolError

LIMIT = 300
lengths = st.one_of(st.integers(1, 20), st.integers(LIMIT - 2, LIMIT + 2), st.integers(1, 900))


def body(number: int, length: int) -> bytes:
    head = b"\x82\xa1t\xa4ping\xa2id" + bytes([number % 128])
    return (head + bytes(range(256)) * 4)[:length]


def cut(data: bytes, at: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(place % (len(data) + 1) for place in at)})
    return [data[a:b] for a, b in itertools.pairwise(places)]


@settings(max_examples=150, deadline=None)
@given(st.lists(lengths, max_size=8), st.lists(st.integers(0, 5000), max_size=30))
def test_feed_gives_the_same_frames_when_the_bytes_are_cut_anywhere(
    sizes: list[int], at: list[int]
) -> None:
    bodies = [body(n, size) for n, size in enumerate(sizes)]
    data = b"".join(map(pack, bodies))
    splitter, found = Splitter(LIMIT), []
    for piece in cut(data, at):
        buffer = bytearray(piece)
        found += splitter.feed(memoryview(buffer))
        buffer[:] = b"\xee" * len(buffer)  # the buffer is read into again
        assert splitter.pending_bytes <= LIMIT + HEAD
    assert found == [
        pack(one) if len(one) <= LIMIT else TooLarge(len(one), *head_of(one[:PREFIX]), True)
        for one in bodies
    ]
    assert splitter.pending_bytes == 0


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(max_size=400), max_size=6))
def test_feed_raises_nothing_but_protocol_error_when_bytes_are_any(pieces: list[bytes]) -> None:
    splitter = Splitter(LIMIT)
    try:
        for piece in pieces:
            for frame in splitter.feed(piece):
                if isinstance(frame, bytes):
                    assert 1 <= int.from_bytes(frame[:HEAD], "big") == len(frame) - HEAD <= LIMIT
    except ProtocolError:
        assert splitter.feed(b"\0\0\0\1x") == []
    assert splitter.pending_bytes <= LIMIT + HEAD


def test_feed_answers_a_too_large_frame_before_it_is_all_there() -> None:
    splitter = Splitter(LIMIT)
    data = pack(body(5, 1000))
    assert splitter.feed(data[: HEAD + PREFIX - 1]) == []
    assert splitter.feed(data[HEAD + PREFIX - 1 : 400]) == [TooLarge(1000, "ping", 5, True)]
    assert splitter.pending_bytes == 0
    assert splitter.feed(data[400:] + pack(b"x")) == [pack(b"x")]


def test_feed_drops_all_that_follows_when_the_length_is_hopeless() -> None:
    splitter = Splitter(LIMIT)
    head = (LIMIT * HOPELESS + 1).to_bytes(HEAD, "big")
    assert splitter.feed(head + pack(b"x")) == [TooLarge(LIMIT * HOPELESS + 1, "", None, False)]
    assert splitter.feed(pack(b"x")) == []


def test_feed_raises_when_a_frame_is_empty() -> None:
    with pytest.raises(ProtocolError, match="no bytes"):
        Splitter().feed(bytes(HEAD))


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.binary(max_size=40), st.binary(max_size=20).map(lambda b: b"\x82\xa1t" + b)))
def test_head_of_never_raises(prefix: bytes) -> None:
    kind, number = head_of(prefix)
    assert isinstance(kind, str)
    assert number is None or 0 <= number < 2**63


@pytest.mark.parametrize(
    ("prefix", "head"),
    [
        (b"\x82\xa1t\xa4call\xa2id\x05", ("call", 5)),
        (b"\xde\x00\x02\xa1t\xa4call\xa2id\xcc\xff", ("call", 255)),
        (b"\xdf\x00\x00\x00\x02\xa1t\xd9\x04call\xa2id\xcd\x01\x00", ("call", 256)),
        (b"\x82\xa1t\xa4call\xa2id\xce\x00\x01\x00\x00", ("call", 65536)),
        (b"\x82\xa1t\xa4call\xa2id\xcf" + (2**63 - 1).to_bytes(8, "big"), ("call", 2**63 - 1)),
        (b"\x82\xa1t\xa4call\xa2id\xcf" + (2**63).to_bytes(8, "big"), ("call", None)),
        (b"\x82\xa1t\xa4call\xa2id\xff", ("call", None)),
        (b"\x82\xa1t\xa4call\xa2id", ("call", None)),
        (b"\x82\xa1t\xa4call\xa2id\xcd\x01", ("call", None)),
        (b"\x82\xa1t\xa4cal", ("", None)),
        (b"\x82\xa1t", ("", None)),
        (b"\x82\xa2id\x05\xa1t\xa4call", ("", None)),
        (b"", ("", None)),
    ],
)
def test_head_of_reads_type_and_id_when_they_stand_first(
    prefix: bytes, head: tuple[str, int | None]
) -> None:
    assert head_of(prefix) == head
