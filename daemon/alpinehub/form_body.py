"""A bounded parser of forms as browsers and hotel software write them: RFC 7578, and urlencoded.

The callers interpret the parts and report their mistakes.
"""

from __future__ import annotations

from typing import Literal
from urllib.parse import unquote_to_bytes

from msgspec import Struct

_MULTIPART = "multipart/form-data"
FORM_TYPES = ("application/x-www-form-urlencoded", _MULTIPART)

#: Bytes of a boundary; RFC 2046 allows 70.
_MAX_BOUNDARY_BYTES = 256
#: Bytes of the headers of one part, all together: a browser writes a question as a field's name.
_MAX_HEADER_BYTES = 8192

Fault = Literal["no_boundary", "malformed", "cut_off", "too_many_parts", "large_headers"]


class Broken(Exception):
    """The body is not a valid form; `fault` is the reason."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault)
        self.fault: Fault = fault


class Part(Struct, frozen=True):
    """One part of a form."""

    #: None: it has no name, or is not form-data.
    name: bytes | None
    data: bytes
    #: It is a file: its Content-Disposition has a filename.
    is_file: bool


def media_type(content_type: str) -> str:
    """The type in a Content-Type, in lower case and without its parameters."""
    return content_type.split(";", 1)[0].strip().lower()


def read_parts(body: bytes, content_type: str, *, most: int) -> list[Part]:
    """The parts in their order, `most` of them. Raises: Broken."""
    if media_type(content_type) == _MULTIPART:
        return _multipart(body, content_type, most)
    pairs = body.split(b"&", most)
    if len(pairs) > most:
        raise Broken("too_many_parts")
    found = [pair.partition(b"=") for pair in pairs if pair]
    return [Part(_unquoted(name), _unquoted(value), is_file=False) for name, _, value in found]


def _unquoted(text: bytes) -> bytes:
    return unquote_to_bytes(text.replace(b"+", b" "))


def _multipart(body: bytes, content_type: str, most: int) -> list[Part]:
    # Imported here: a worker without form posts saves its memory.
    from python_multipart.exceptions import FormParserError
    from python_multipart.multipart import MultipartParser

    boundary = _parameters(content_type)[1].get(b"boundary", b"")
    if not 0 < len(boundary) <= _MAX_BOUNDARY_BYTES:
        raise Broken("no_boundary")
    collector = _Collector(most)
    events = ("part_begin", "header_field", "header_value", "header_end", "part_data", "part_end")
    callbacks = {f"on_{event}": getattr(collector, f"on_{event}") for event in (*events, "end")}
    try:
        parser = MultipartParser(boundary, callbacks)  # type: ignore[arg-type]
        # It logs every invalid body, and anybody can send many; the reason is in the log line of
        # the request.
        parser.logger.disabled = True
        parser.write(body)
        parser.finalize()
    except FormParserError:
        raise Broken("malformed") from None
    if not collector.complete:
        raise Broken("cut_off")
    return collector.parts


def _parameters(header: str | bytes) -> tuple[bytes, dict[bytes, bytes]]:
    """The value of a header, and its parameters. Raises: Broken."""
    from python_multipart.multipart import parse_options_header

    try:
        return parse_options_header(header)
    except ValueError:  # some versions read name*N="x" by RFC 2231, N of thousands of digits, too
        raise Broken("malformed") from None


class _Collector:
    """Makes the parts of one body from the parser's callbacks."""

    def __init__(self, most: int) -> None:
        self.parts: list[Part] = []
        self.complete = False
        self._most = most
        self._header_bytes = 0
        self._field = self._value = self._disposition = b""
        self._data: list[bytes] = []

    def on_part_begin(self) -> None:
        if len(self.parts) == self._most:
            raise Broken("too_many_parts")
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
        self._count(len(": \r\n"))
        if self._field.lower() == b"content-disposition":
            self._disposition = self._value
        self._field = self._value = b""

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        self._data.append(data[start:end])

    def on_part_end(self) -> None:
        kind, options = _parameters(self._disposition)
        name = options.get(b"name") if kind.lower() == b"form-data" else None
        self.parts.append(Part(name, b"".join(self._data), b"filename" in options))

    def on_end(self) -> None:
        self.complete = True

    def _count(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > _MAX_HEADER_BYTES:
            raise Broken("large_headers")
