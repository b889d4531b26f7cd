"""Arrays of PostgreSQL: one parameter with a value of every unit.

Texts and bytes go in binary, a length before each: nothing is escaped here or unescaped there.
Everything else goes as text, each value as it would be sent alone.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from cordata.store.postgres.result import encode

#: Dimensions, whether there are NULLs (not looked at), type of the elements, length, first index.
_HEAD = struct.Struct("!iiIii").pack
_LENGTH = struct.Struct("!i").pack
_NULL = _LENGTH(-1)
_TEXTS = {"text", "varchar", "bpchar", "name"}

#: Makes the array of some values and tells its format, as libpq numbers them (0 text, 1 binary).
#: Raises: PermanentError for what no column can hold, if it sees it; else the server does.
EncodeArray = Callable[[Sequence[object]], tuple[bytes, int]]


def array_encoder(name: str, oid: int) -> EncodeArray:
    """For elements of this type."""
    if name in _TEXTS:
        return lambda values: (_texts(values, oid), 1)
    if name == "bytea":
        return lambda values: _bytes(values, oid)
    return lambda values: (as_text(values), 0)


def as_text(values: Sequence[object]) -> bytes:
    """The array as text, each value as `encode` writes it."""
    if set(map(type, values)) == {int}:
        return ("{" + str([*values])[1:-1] + "}").encode()
    return b"{" + b",".join([_element(encode(value)) for value in values]) + b"}"


def _element(data: bytes | None) -> bytes:
    if data is None:
        return b"NULL"
    return b'"' + data.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'


def _texts(values: Sequence[object], oid: int) -> bytes:
    parts = [_HEAD(1, 0, oid, len(values), 1)]
    for value in values:
        if value is None:
            parts.append(_NULL)
            continue
        data = encode(value)
        assert data is not None
        parts += (_LENGTH(len(data)), data)
    return b"".join(parts)


def _bytes(values: Sequence[object], oid: int) -> tuple[bytes, int]:
    parts = [_HEAD(1, 0, oid, len(values), 1)]
    for value in values:
        if value is None:
            parts.append(_NULL)
        elif isinstance(value, bytes):
            parts += (_LENGTH(len(value)), value)
        else:
            return as_text(values), 0
    return b"".join(parts), 1
