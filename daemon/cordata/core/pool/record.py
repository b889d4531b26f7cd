"""Records of the file that keeps sessions and globals over a restart of the manager.

```
file    = "CORDPOOL", u32 version 1, records
record  = u32 length of the body, u32 CRC-32 of the body, body; integers are big-endian
body    = one MessagePack map; `k` tells its kind, `x` is a time of expiry in microseconds of 1970
  s {id, d: data, c: counters, v: version, ttl, x, aff, wk}      a session, whole
  d {id, v, set, del, cnt: new values, x, ttl, aff, wk}          what changed; unknown id: nothing
  x {id}  it was deleted      t {x: {id: x}}  they were used      g {v, set, del, full}  the globals
```
An append that was cut short, or bytes that a disk lost, fail the CRC: what follows is not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct as Layout
from typing import NamedTuple, TypeAlias
from zlib import crc32

from msgspec import DecodeError, Struct, field, msgpack

from cordata.core.pool.message import Affinity, Counts, Number, Seconds, Values

_NAME = b"CORDPOOL"
VERSION = 1
MAGIC = _NAME + VERSION.to_bytes(4, "big")
#: A longer body is damage, not data: the globals, or a session, may have 1 GiB.
MAX_BODY = 2**31 - 1
_HEAD = Layout(">II")


class Put(Struct, tag_field="k", tag="s", omit_defaults=True, gc=False):
    """A session, whole."""

    id: str
    v: Number
    ttl: Seconds
    x: int
    d: Values = field(default_factory=dict)
    c: Counts = field(default_factory=dict)
    aff: Affinity = "hint"
    wk: str = ""


class Changed(Struct, tag_field="k", tag="d", omit_defaults=True, gc=False):
    """What changed in a session; counters have their new value, None is unchanged."""

    id: str
    v: Number
    x: int
    set: Values = field(default_factory=dict)
    delete: list[str] = field(default_factory=list, name="del")
    cnt: Counts = field(default_factory=dict)
    ttl: Seconds | None = None
    aff: Affinity | None = None
    wk: str | None = None


class Removed(Struct, tag_field="k", tag="x", gc=False):
    """A session was deleted. One that expires leaves no record: its time is in the others."""

    id: str


class Touched(Struct, tag_field="k", tag="t", gc=False):
    """Sessions were used, so they live longer."""

    x: dict[str, int]


class GlobalsChanged(Struct, tag_field="k", tag="g", omit_defaults=True, gc=False):
    """The globals changed; `full`: these are all of them."""

    v: Number
    set: Values = field(default_factory=dict)
    delete: list[str] = field(default_factory=list, name="del")
    full: bool = False


Change: TypeAlias = Put | Changed | Removed | Touched | GlobalsChanged
_encoder = msgpack.Encoder()
_decoder: msgpack.Decoder[Change] = msgpack.Decoder(Change)


class Found(NamedTuple):
    """A record, and where the next one begins."""

    end: int
    change: Change


def encode(change: Change) -> bytes:
    """The record of a change, with length and checksum."""
    body = _encoder.encode(change)
    return _HEAD.pack(len(body), crc32(body)) + body


def version_of(data: bytes | memoryview) -> int | None:
    """Which version of this program wrote the file; None: none did."""
    head = bytes(data[: len(MAGIC)])
    return int.from_bytes(head[-4:], "big") if head[:-4] == _NAME else None


def scan(data: bytes | memoryview, start: int = 0) -> Iterator[Found]:
    """The whole records from `start` on; it ends before the first that is torn or damaged.

    So the file is good up to the last `end`, or to `start` if there was none. Values are views
    into `data`.
    """
    view = memoryview(data)
    at = start
    while at + _HEAD.size <= len(view):
        length, checksum = _HEAD.unpack_from(view, at)
        end = at + _HEAD.size + length
        if not 0 < length <= MAX_BODY or end > len(view):
            return
        body = view[at + _HEAD.size : end]
        if crc32(body) != checksum:
            return
        try:
            change = _decoder.decode(body)
        except (DecodeError, UnicodeDecodeError, RecursionError):
            return
        yield Found(end, change)
        at = end
