"""Request bodies: counts Content-Length, decodes chunked strictly, bounds both. Pure."""

from __future__ import annotations

import re

from cordata.http.refused import bad_request, body_too_large, header_too_large

# RFC 9112 7.1, without its BWS before the size: nothing that two readers could read differently.
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,16}+)(?:[ \t]*+;[\t -~\x80-\xff]*+)?+\r\n")
_TRAILER_LINE = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]++:[\t -~\x80-\xff]*+\r\n")
#: Bytes of a chunk's size line; extensions mean nothing to us.
_MAX_CHUNK_LINE = 256
#: Bytes of all trailer lines; they are checked and dropped.
_MAX_TRAILER = 8192
#: Framing that may come on top of the body's own bytes, before tiny chunks are taken for an attack.
_FRAMING_ALLOWANCE = 65_536


class LengthBody:
    """A body of a declared length."""

    __slots__ = ("left",)

    def __init__(self, length: int) -> None:
        self.left = length

    @property
    def done(self) -> bool:
        """Whether the last byte has been seen."""
        return self.left == 0

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """Returns (bytes of the body, bytes that follow it)."""
        if len(data) <= self.left:
            self.left -= len(data)
            return data, b""
        piece, rest = data[: self.left], data[self.left :]
        self.left = 0
        return piece, rest


class ChunkedBody:
    """A chunked body.

    size line --> data --> CRLF --> size line ... 0 --> trailer lines --> empty line: done
    """

    __slots__ = ("_kept", "_left", "_max_bytes", "_raw", "_size", "_state", "_trailer", "done")

    def __init__(self, max_bytes: int) -> None:
        self.done = False
        self._max_bytes = max_bytes
        #: Decoded, and received, bytes so far.
        self._size = self._raw = 0
        #: Data bytes of the current chunk still to come.
        self._left = 0
        self._trailer = 0
        #: An incomplete line.
        self._kept = b""
        self._state = self._size_line

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """Returns (decoded bytes, bytes that follow the body). Raises: Refused (400, 413, 431)."""
        self._raw += len(data)
        data = self._kept + data
        self._kept = b""
        pieces: list[bytes] = []
        position = 0
        while position < len(data) and not self.done:
            after = self._state(data, position, pieces)
            if after == position:
                self._kept = data[position:]
                break
            position = after
        rest = data[position:] if self.done else b""
        if self._raw - len(rest) > 2 * self._max_bytes + _FRAMING_ALLOWANCE:
            raise body_too_large()
        return b"".join(pieces), rest

    def _size_line(self, data: bytes, position: int, pieces: list[bytes]) -> int:
        end = data.find(b"\n", position) + 1
        match = _CHUNK_LINE.fullmatch(data, position, end) if end else None
        if (end or len(data)) - position > _MAX_CHUNK_LINE or (end and match is None):
            raise bad_request("a chunk size is malformed")
        if match is None:
            return position
        self._left = int(match[1], 16)
        self._size += self._left
        if self._size > self._max_bytes:
            raise body_too_large()
        self._state = self._data if self._left else self._trailer_line
        return end

    def _data(self, data: bytes, position: int, pieces: list[bytes]) -> int:
        piece = data[position : position + self._left]
        pieces.append(piece)
        self._left -= len(piece)
        if not self._left:
            self._state = self._data_end
        return position + len(piece)

    def _data_end(self, data: bytes, position: int, pieces: list[bytes]) -> int:
        end = data[position : position + 2]
        if end == b"\r\n":
            self._state = self._size_line
            return position + 2
        if end != b"\r":
            raise bad_request("a chunk is longer than its size")
        return position

    def _trailer_line(self, data: bytes, position: int, pieces: list[bytes]) -> int:
        if data[position : position + 2] == b"\r\n":
            self.done = True
            return position + 2
        end = data.find(b"\n", position) + 1
        length = (end or len(data)) - position
        if self._trailer + length > _MAX_TRAILER:
            raise header_too_large("the trailer is too large")
        if not end:
            return position
        if _TRAILER_LINE.fullmatch(data, position, end) is None:
            raise bad_request("a trailer line is malformed")
        self._trailer += length
        return end


Body = LengthBody | ChunkedBody


def expected_body(length: int, chunked: bool, max_bytes: int) -> Body | None:
    """The body that a head announces; None: there is none."""
    if chunked:
        return ChunkedBody(max_bytes)
    return LengthBody(length) if length else None
