"""Chunked bodies against a second implementation, and their bounds."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from cordata.http.parser import ChunkedBody, HttpError, LengthBody


def encode(pieces: list[bytes]) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in pieces if p) + b"0\r\n\r\n"


def decode_cut(body: ChunkedBody | LengthBody, data: bytes, cuts: list[int]) -> tuple[bytes, bytes]:
    """Feed `data` cut at the given places. Returns (decoded, rest)."""
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    decoded, rest = b"", b""
    for begin, end in itertools.pairwise(edges):
        if body.left == 0:
            rest += data[begin:end]
            continue
        piece, after = body.feed(data[begin:end])
        decoded += piece
        rest += after
        while body.undecoded:
            piece, after = body.feed(b"")
            decoded += piece
            rest += after
    return decoded, rest


@settings(max_examples=examples(80), deadline=None, database=None)
@given(st.lists(st.binary(max_size=40), max_size=6), st.lists(st.integers(0), max_size=6))
def test_chunked_body_decodes_to_what_was_encoded(pieces: list[bytes], cuts: list[int]) -> None:
    body = ChunkedBody(1000)
    decoded, rest = decode_cut(body, encode(pieces) + b"next", cuts)
    assert (decoded, rest, body.left) == (b"".join(pieces), b"next", 0)


@settings(max_examples=examples(100), deadline=None, database=None)
@given(st.binary(max_size=60), st.lists(st.integers(0), max_size=4))
def test_chunked_body_means_the_same_when_cut(data: bytes, cuts: list[int]) -> None:
    def outcome(cut_at: list[int]) -> object:
        try:
            return decode_cut(ChunkedBody(50), data, cut_at)
        except HttpError as refused:
            return refused.status

    assert outcome(cuts) == outcome([])


@pytest.mark.parametrize("size", [5, 20, 1000, 1_000_000])
def test_chunked_body_may_come_in_chunks_of_any_sensible_size(size: int) -> None:
    pieces = [b"x" * size] * (1_000_000 // size)
    decoded, _ = decode_cut(ChunkedBody(1_000_000), encode(pieces), list(range(0, 5000, 97)))
    assert decoded == b"x" * 1_000_000


def test_small_chunked_body_may_come_in_chunks_of_one_byte() -> None:
    decoded, _ = decode_cut(ChunkedBody(10_000), encode([b"x"] * 10_000), [])
    assert decoded == b"x" * 10_000


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_large_chunked_body_is_refused_when_its_chunks_are_tiny(size: int) -> None:
    with pytest.raises(HttpError) as refused:
        decode_cut(ChunkedBody(1_000_000), encode([b"x" * size] * (1_000_000 // size)), [])
    assert refused.value.status == 400


@pytest.mark.parametrize("extra", [b"0" * 15, b"1;" + b"x" * 200], ids=["zeros", "extension"])
def test_chunked_body_is_refused_when_its_size_lines_outweigh_it(extra: bytes) -> None:
    line = extra + (b"1" if extra.isdigit() else b"")
    with pytest.raises(HttpError) as refused:
        decode_cut(ChunkedBody(1_000_000), (line + b"\r\nx\r\n") * 20_000, [])
    assert refused.value.status == 400


def test_length_body_leaves_what_follows() -> None:
    body = LengthBody(3)
    assert body.feed(b"ab") == (b"ab", b"")
    assert body.left
    assert body.feed(b"cdef") == (b"c", b"def")
    assert body.left == 0
