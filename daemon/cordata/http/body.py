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
#: Bytes of framing that a body may have beyond one for each of its own bytes. Chunks of five bytes
#: never exceed it; decoding 10 MB in chunks of one byte took six seconds of a worker.
_FRAMING_ALLOWANCE = 65_536
#: Chunks, or parts of one, decoded in one turn of the event loop: about 0.1 ms.
_STEPS_PER_TURN = 128


class LengthBody:
    """A body of a declared length."""

    __slots__ = ("behind", "left")

    def __init__(self, length: int) -> None:
        self.left = length
        #: As that of `ChunkedBody`: counting takes no time.
        self.behind = False

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

    __slots__ = (
        "_data",
        "_framing",
        "_left",
        "_max_bytes",
        "_position",
        "_size",
        "_state",
        "_trailer",
        "behind",
        "done",
    )

    def __init__(self, max_bytes: int) -> None:
        self.done = False
        #: Received bytes wait to be decoded: `feed(b"")` goes on with them.
        self.behind = False
        self._max_bytes = max_bytes
        #: Announced bytes of data, and bytes of size lines and line ends, so far.
        self._size = self._framing = 0
        #: Data bytes of the current chunk still to come.
        self._left = 0
        self._trailer = 0
        #: What was received and is not decoded yet, from `_position` on.
        self._data = b""
        self._position = 0
        self._state = self._size_line

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """Decode a bounded number of chunks; see `behind`.

        Returns (decoded bytes, bytes that follow the body). Raises: Refused (400, 413, 431); it
        depends only on the bytes, never on how they were cut.
        """
        if data:
            data, position = self._data[self._position :] + data, 0
        else:
            data, position = self._data, self._position
        pieces: list[bytes] = []
        steps = 0
        while position < len(data) and not self.done and steps < _STEPS_PER_TURN:
            after = self._state(data, position, pieces)
            if after == position:
                break  # an incomplete line
            position = after
            steps += 1
        self.behind = steps == _STEPS_PER_TURN and position < len(data) and not self.done
        if self.done or position == len(data):
            self._data, self._position = b"", 0
        else:
            self._data, self._position = data, position
        return b"".join(pieces), data[position:] if self.done else b""

    def _size_line(self, data: bytes, position: int, pieces: list[bytes]) -> int:
        match = _CHUNK_LINE.match(data, position, position + _MAX_CHUNK_LINE)
        if match is None:
            line = data[position : position + _MAX_CHUNK_LINE + 1]
            if len(line) > _MAX_CHUNK_LINE or b"\n" in line:
                raise bad_request("a chunk size is malformed")
            return position
        begin, size = match.end(), int(match[1], 16)
        self._framing += begin - position + 2
        if self._framing > self._size + _FRAMING_ALLOWANCE:
            raise bad_request("the chunks are too small: send the body in larger ones")
        self._size += size
        if self._size > self._max_bytes:
            raise body_too_large()
        end = begin + size
        if size and data[end : end + 2] == b"\r\n":  # mostly a chunk is here whole
            pieces.append(data[begin:end])
            return end + 2
        self._left = size
        self._state = self._chunk_data if size else self._trailer_line
        return begin

    def _chunk_data(self, data: bytes, position: int, pieces: list[bytes]) -> int:
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
