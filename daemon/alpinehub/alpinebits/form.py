"""The body of a request: a form with `action` and `request`, bounded before, in and after gzip."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote_to_bytes

from alpinehub.alpinebits.bounds import MAX_BODY_BYTES
from alpinehub.alpinebits.transport_error import TransportError
from alpinehub.multipart import Broken, Fault, media_type, read_parts

#: gzip can shrink zeros 1000 times; what hotel software sends shrinks 5 to 40 times.
MAX_GZIP_RATIO = 100
#: Below this size the ratio is not looked at.
_RATIO_FREE_BYTES = 64 * 1024
#: Parts of a form: two are due, a few more are ignored.
_MAX_PARTS = 16
_MAX_ACTION_CHARS = 128
_PROBLEMS: Final[dict[Fault, str]] = {
    "no_boundary": "multipart/form-data without a boundary",
    "malformed": "the multipart body is malformed",
    "cut_off": "the multipart body is cut off: its last boundary is missing",
    "too_many_parts": "the form has too many parts",
    "large_headers": "the headers of a part of the form are too large",
}


@dataclass(frozen=True, slots=True)
class Form:
    """The two fields of an AlpineBits request; None: not sent."""

    action: str | None
    #: The bytes of the XML document, as sent.
    request: bytes | None


def unpack(body: bytes, encoding: str) -> bytes:
    """The body without its Content-Encoding. Raises: TransportError for an unknown or broken one
    (415, 400) and for one that grows beyond MAX_BODY_BYTES or MAX_GZIP_RATIO (413).
    """
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return body
    if encoding not in ("gzip", "x-gzip"):
        raise TransportError(415, "the only Content-Encoding accepted is gzip")
    limit = min(MAX_BODY_BYTES, max(_RATIO_FREE_BYTES, len(body) * MAX_GZIP_RATIO))
    unpacker = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    try:
        unpacked = unpacker.decompress(body, limit + 1)
    except zlib.error:
        raise TransportError(400, "the body is not gzip, though Content-Encoding says so") from None
    if len(unpacked) > limit:
        raise TransportError(413, "the unpacked body is too large")
    if not unpacker.eof or unpacker.unused_data:
        raise TransportError(400, "the gzip body is cut off or followed by other data")
    return unpacked


def parse_form(content_type: str, body: bytes) -> Form:
    """The form in a body that is no longer packed.

    multipart/form-data is the rule, with `request` as a plain field or a file part;
    application/x-www-form-urlencoded is accepted too. Raises: TransportError.
    """
    kind = media_type(content_type)
    if kind == "multipart/form-data":
        fields = _multipart(content_type, body)
    elif kind == "application/x-www-form-urlencoded":
        fields = _urlencoded(body)
    else:
        raise TransportError(415, "the body must be a form: multipart/form-data")
    action = fields.get(b"action")
    return Form(
        action=_action(action) if action is not None else None, request=fields.get(b"request")
    )


def _action(value: bytes) -> str | None:
    """The action as text, None when it cannot be one. White space at the ends is not the client's
    mistake but its form library's.
    """
    text = value[: _MAX_ACTION_CHARS + 1].decode("latin-1").strip()
    return text if len(text) <= _MAX_ACTION_CHARS else None


def _urlencoded(body: bytes) -> dict[bytes, bytes]:
    pairs = body.split(b"&", _MAX_PARTS)
    if len(pairs) > _MAX_PARTS:
        raise TransportError(400, "the form has too many fields")
    fields: dict[bytes, bytes] = {}
    for pair in pairs:
        name, _, value = pair.partition(b"=")
        _add(fields, unquote_to_bytes(name.replace(b"+", b" ")), value)
    return {name: unquote_to_bytes(value.replace(b"+", b" ")) for name, value in fields.items()}


def _add(fields: dict[bytes, bytes], name: bytes, value: bytes) -> None:
    if name not in (b"action", b"request"):
        return
    if name in fields:
        raise TransportError(400, f"the form has two fields named {name.decode()}")
    fields[name] = value


def _multipart(content_type: str, body: bytes) -> dict[bytes, bytes]:
    try:
        parts = read_parts(body, content_type, most=_MAX_PARTS)
    except Broken as broken:
        raise TransportError(400, _PROBLEMS[broken.fault]) from None
    fields: dict[bytes, bytes] = {}
    for part in parts:
        if part.name is None:
            raise TransportError(400, "a part of the form has no name")
        _add(fields, part.name, part.data)
    return fields
