"""Chunked bodies against a second implementation, and their bounds."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cordata.http.body import ChunkedBody, LengthBody
from cordata.http.refused import Refused


def encode(pieces: list[bytes]) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in pieces if p) + b"0\r\n\r\n"


def decode_cut(body: ChunkedBody | LengthBody, data: bytes, cuts: list[int]) -> tuple[bytes, bytes]:
    """Feed `data` cut at the given places. Returns (decoded, rest)."""
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    decoded, rest = b"", b""
    for begin, end in itertools.pairwise(edges):
        if body.done:
            rest += data[begin:end]
            continue
        piece, after = body.feed(data[begin:end])
        decoded += piece
        rest += after
    return decoded, rest


@settings(max_examples=80, deadline=None, database=None)
@given(st.lists(st.binary(max_size=40), max_size=6), st.lists(st.integers(0), max_size=6))
def test_chunked_body_decodes_to_what_was_encoded(pieces: list[bytes], cuts: list[int]) -> None:
    body = ChunkedBody(1000)
    decoded, rest = decode_cut(body, encode(pieces) + b"next", cuts)
    assert (decoded, rest, body.done) == (b"".join(pieces), b"next", True)


@settings(max_examples=100, deadline=None, database=None)
@given(st.binary(max_size=60), st.lists(st.integers(0), max_size=4))
def test_chunked_body_means_the_same_when_cut(data: bytes, cuts: list[int]) -> None:
    def outcome(cut_at: list[int]) -> object:
        try:
            return decode_cut(ChunkedBody(50), data, cut_at)
        except Refused as refused:
            return refused.status

    assert outcome(cuts) == outcome([])


def test_chunked_body_is_refused_when_framing_outweighs_it() -> None:
    body = ChunkedBody(100_000)
    with pytest.raises(Refused) as refused:
        for _ in range(100_000):
            body.feed(b"1;" + b"x" * 200 + b"\r\na\r\n")
    assert refused.value.status == 413


def test_length_body_leaves_what_follows() -> None:
    body = LengthBody(3)
    assert body.feed(b"ab") == (b"ab", b"")
    assert not body.done
    assert body.feed(b"cdef") == (b"c", b"def")
    assert body.done
