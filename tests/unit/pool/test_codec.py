"""Messages to frames and back: nothing but ProtocolError comes out of foreign bytes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw, msgpack

from cordata.core.frame import HEAD, head_of, pack
from cordata.core.pool import codec
from cordata.core.pool.message import MAX_ENTRIES, NIL, CallFrame, ErrorFrame, Ping, Result
from cordata.core.pool.order import Run
from cordata.errors import FrameTooLarge, PoolError, ProtocolError

CORPUS = sorted((Path(__file__).parents[2] / "data/pool").glob("*/*.bin"))
DECODERS = (
    codec.from_client,
    codec.from_child,
    codec.from_worker,
    codec.to_client,
    codec.to_child,
    codec.to_worker,
    codec.worker_to_child,
    codec.child_to_worker,
)


def poke(frame: bytes) -> None:
    for decoder in DECODERS:
        try:
            decoder.decode(frame)
        except ProtocolError:
            pass


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=120))
def test_decode_raises_nothing_but_protocol_error_when_bytes_are_any(data: bytes) -> None:
    poke(pack(data))


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_decode_raises_nothing_but_protocol_error_when_the_corpus_is_mutated(path: Path) -> None:
    data, rng = path.read_bytes()[:4096], random.Random(path.stem)
    for _ in range(60):
        one = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(one))
            match rng.randrange(3):
                case 0:
                    one[at] = rng.randrange(256)
                case 1:
                    del one[at]
                case _:
                    one.insert(at, rng.choice((0, 0x80, 0xC1, 0xDD, 0xDF, 0xFF, 0xA1)))
            one = one or bytearray(b"\0")
        poke(bytes(one))


def test_decode_leaves_the_payload_as_it_came() -> None:
    payload = msgpack.encode({"b": 1, "a": [None, "ü"]})
    call = codec.from_client.decode(
        codec.encode(CallFrame(id=1, command="x", payload=Raw(payload)))
    )
    assert isinstance(call, CallFrame)
    assert bytes(call.payload) == payload
    run = codec.encode(Run(id=1, n=1, command="x", payload=call.payload))
    assert payload in run


def test_encode_leaves_out_what_has_its_default() -> None:
    assert msgpack.decode(codec.encode(CallFrame(id=1, command="x", payload=NIL))[HEAD:]) == {
        "t": "call",
        "id": 1,
        "c": "x",
    }


def test_encode_puts_type_and_id_first() -> None:
    for message in (Result(id=5, x=3), ErrorFrame(id=5, code="failed"), Ping(id=5)):
        assert codec.encode(message)[HEAD + 1 : HEAD + 3] == b"\xa1t"
        assert head_of(codec.encode(message)[HEAD:])[1] == 5


def test_encode_refuses_when_the_frame_is_too_large() -> None:
    call = CallFrame(id=1, command="x", payload=Raw(msgpack.encode(b"p" * 2_000_000)))
    with pytest.raises(FrameTooLarge) as caught:
        codec.encode(call, max_bytes=1_000_000)
    assert caught.value.length_bytes > 2_000_000
    assert caught.value.limit_bytes == 1_000_000
    assert len(codec.encode(call)) == caught.value.length_bytes + HEAD
    assert len(codec.encode(Ping(id=1))) < 20


def test_each_wire_code_has_one_error() -> None:
    assert all(issubclass(kind, PoolError) for kind in codec.POOL_ERRORS.values())
    assert {
        *("saturated", "queue_timeout", "deadline", "cancelled", "crashed", "poisoned", "failed"),
        *("unknown_command", "restarted", "frame_too_large", "no_session", "session_exists"),
        *("quota", "preferred_busy", "closed", "unavailable"),
    } == set(codec.POOL_ERRORS)


ENTRIES = {
    ("session", "set"): b"\xdf",
    ("session", "by"): b"\xdf",
    ("session", "del"): b"\xdd",
    ("global", "set"): b"\xdf",
    ("global", "del"): b"\xdd",
    ("global", "keys"): b"\xdd",
    ("hello", "has"): b"\xdd",
    ("hello", "cmds"): b"\xdd",
}


@pytest.mark.parametrize(("kind", "key"), ENTRIES, ids="-".join)
def test_decode_refuses_very_many_entries_before_it_makes_them(kind: str, key: str) -> None:
    head = {"session": {"id": 7, "op": "update"}, "global": {"id": 7, "op": "get"}}
    fields = {"t": kind, **head.get(kind, {"role": "client"})}
    begin = bytes([0x81 + len(fields)]) + msgpack.encode(fields)[1:]
    begin += msgpack.encode(key)

    def frame(count: int, entries: bytes) -> bytes:
        return pack(begin + ENTRIES[kind, key] + count.to_bytes(4, "big") + entries)

    one = b"\xa1k\x01" if ENTRIES[kind, key] == b"\xdf" else b"\xa0"
    codec.from_client.decode(frame(MAX_ENTRIES, one * MAX_ENTRIES))
    with pytest.raises(codec.UnfitMessage, match="length <= 65536") as caught:
        codec.from_client.decode(frame(MAX_ENTRIES + 1, b""))  # none of them is looked at
    assert caught.value.id == (None if kind == "hello" else 7)
