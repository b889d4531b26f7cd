"""The body of a request: a form with `action` and `request`, bounded before, in and after gzip."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from alpinehub.alpinebits.refusal import Refusal

#: Body as received, and as unpacked: all rate plans of a large hotel are 3 to 6 MB.
MAX_BODY_BYTES = 8 * 1024 * 1024
#: What has more is rare: 1 MiB acknowledges 10,000 guest requests.
LARGE_BYTES = 2 * 1024 * 1024
#: gzip can shrink zeros 1000 times; what hotel software sends shrinks 5 to 40 times.
MAX_GZIP_RATIO = 100
#: Below this size the ratio is not looked at.
_RATIO_FREE_BYTES = 64 * 1024
#: Parts of a form: two are due, a few more are ignored.
_MAX_PARTS = 16
#: Headers of one part, all together.
_MAX_PART_HEADER_BYTES = 8192
_MAX_ACTION_CHARS = 128


@dataclass(frozen=True, slots=True)
class Form:
    """The two fields of an AlpineBits request; None: not sent."""

    action: str | None
    #: The bytes of the XML document, as sent.
    request: bytes | None


def unpack(body: bytes, encoding: str) -> bytes:
    """The body without its Content-Encoding. Raises: Refusal for an unknown or broken one (415,
    400) and for one that grows beyond MAX_BODY_BYTES or MAX_GZIP_RATIO (413).
    """
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return body
    if encoding not in ("gzip", "x-gzip"):
        raise Refusal(415, "the only Content-Encoding accepted is gzip")
    limit = min(MAX_BODY_BYTES, max(_RATIO_FREE_BYTES, len(body) * MAX_GZIP_RATIO))
    unpacker = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    try:
        unpacked = unpacker.decompress(body, limit + 1)
    except zlib.error:
        raise Refusal(400, "the body is not gzip, though Content-Encoding says so") from None
    if len(unpacked) > limit:
        raise Refusal(413, "the unpacked body is too large")
    if not unpacker.eof or unpacker.unused_data:
        raise Refusal(400, "the gzip body is cut off or followed by other data")
    return unpacked


def parse_form(content_type: str, body: bytes) -> Form:
    """The form in a body that is no longer packed.

    multipart/form-data is the rule, with `request` as a plain field or a file part;
    application/x-www-form-urlencoded is accepted too. Raises: Refusal.
    """
    kind = content_type.split(";", 1)[0].strip().lower()
    if kind == "multipart/form-data":
        fields = _multipart(content_type, body)
    elif kind == "application/x-www-form-urlencoded":
        fields = _urlencoded(body)
    else:
        raise Refusal(415, "the body must be a form: multipart/form-data")
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
        raise Refusal(400, "the form has too many fields")
    fields: dict[bytes, bytes] = {}
    for pair in pairs:
        name, _, value = pair.partition(b"=")
        _add(fields, unquote_to_bytes(name.replace(b"+", b" ")), value)
    return {name: unquote_to_bytes(value.replace(b"+", b" ")) for name, value in fields.items()}


def _add(fields: dict[bytes, bytes], name: bytes, value: bytes) -> None:
    if name not in (b"action", b"request"):
        return
    if name in fields:
        raise Refusal(400, f"the form has two fields named {name.decode()}")
    fields[name] = value


class _Parts:
    """Collects the parts of one multipart body from the parser's callbacks."""

    def __init__(self) -> None:
        self.fields: dict[bytes, bytes] = {}
        self.complete = False
        self._parts = 0
        self._header_bytes = 0
        self._field = b""
        self._value = b""
        self._disposition = b""
        self._data: list[bytes] = []

    def on_part_begin(self) -> None:
        self._parts += 1
        if self._parts > _MAX_PARTS:
            raise Refusal(400, "the form has too many parts")
        self._header_bytes = 0
        self._disposition = b""
        self._data = []

    def on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._count(end - start)
        self._field += data[start:end]

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._count(end - start)
        self._value += data[start:end]

    def on_header_end(self) -> None:
        if self._field.lower() == b"content-disposition":
            self._disposition = self._value
        self._field = self._value = b""

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        self._data.append(data[start:end])

    def on_part_end(self) -> None:
        from python_multipart.multipart import parse_options_header

        kind, options = parse_options_header(self._disposition)
        if kind != b"form-data" or b"name" not in options:
            raise Refusal(400, "a part of the form has no name")
        _add(self.fields, options[b"name"], b"".join(self._data))

    def on_end(self) -> None:
        self.complete = True

    def _count(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > _MAX_PART_HEADER_BYTES:
            raise Refusal(400, "the headers of a part of the form are too large")


def _multipart(content_type: str, body: bytes) -> dict[bytes, bytes]:
    # Imported here: a worker that serves no hotel software does not carry it.
    from python_multipart.exceptions import FormParserError
    from python_multipart.multipart import MultipartParser, parse_options_header

    _, options = parse_options_header(content_type)
    boundary = options.get(b"boundary", b"")
    if not 0 < len(boundary) <= 256:
        raise Refusal(400, "multipart/form-data without a boundary")
    parts = _Parts()
    names = ("part_begin", "header_field", "header_value", "header_end", "part_data", "part_end")
    callbacks = {f"on_{name}": getattr(parts, f"on_{name}") for name in (*names, "end")}
    try:
        parser = MultipartParser(boundary, callbacks)  # type: ignore[arg-type]
        parser.write(body)
        parser.finalize()
    except FormParserError:
        raise Refusal(400, "the multipart body is malformed") from None
    if not parts.complete:
        raise Refusal(400, "the multipart body is cut off: its last boundary is missing")
    return parts.fields
