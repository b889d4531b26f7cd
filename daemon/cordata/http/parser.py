"""Parses HTTP/1.1 requests: the head by one strict grammar, the body by its framing. Pure.

    bytes --HeadParser.parse--> RequestHead --body_of--> LengthBody or ChunkedBody --feed--> pieces

One regular expression matches a whole head and splits it (RFC 9112, without obs-fold and bare LF);
if it does not match, the head is examined line by line, to name the first fault. httptools and
other parsers in C accept more than this grammar, each of them something else, and took twice as
long, because they call back for every field.
"""

from __future__ import annotations

import re

from cordata import trace
from cordata.config.sections import HttpConfig
from cordata.errors import ProtocolError


class HttpError(ProtocolError):
    """A request that the server answers itself; the connection closes after the answer."""

    def __init__(self, status: int, code: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        #: Stable, for programs; goes into the response body and the log.
        self.code = code
        #: One sentence, safe to send: it never quotes the request.
        self.reason = reason


def bad_request(reason: str) -> HttpError:
    """400: the bytes are not a request that RFC 9112 allows, or that this server accepts."""
    return HttpError(400, "bad_request", reason)


def _header_too_large(reason: str) -> HttpError:
    return HttpError(431, "header_too_large", reason)


def _body_too_large() -> HttpError:
    return HttpError(413, "body_too_large", "the body is too large")


# The head

# Possessive quantifiers (++): a head that does not match fails in linear time.
_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]"
_START = rb"(" + _TOKEN + rb"{1,32}+) ([!\"$-~]++) HTTP/"
# A minor version above 1 is read as 1.1 (RFC 9110 2.5, 6.2).
_LINE = _START + rb"1\.([0-9])\r\n"
_FIELD = _TOKEN + rb"++:[\t -~\x80-\xff]*+\r\n"
_HEAD = re.compile(_LINE + rb"(?:" + _FIELD + rb")*+\r\n")
_REQUEST_LINE = re.compile(_LINE)
_FIELD_LINE = re.compile(_FIELD)
_METHOD = re.compile(_TOKEN + rb"{1,32}+(?: |\Z)")
_OTHER_VERSION = re.compile(_START + rb"[02-9]\.[0-9]\r\n")
#: reg-name, IPv4 or [IPv6], and a port. No comma: a repeated Host is joined with one.
_HOST = re.compile(rb"(?:[A-Za-z0-9._~%!$&'()*+;=-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{0,5})?")
_DIGITS = re.compile(rb"[0-9]{1,18}")
_ABSOLUTE = re.compile(rb"https?://([^/?@]*)([/?].*)?", re.IGNORECASE)

#: The methods that are served, others get 501. The value is what the ASGI scope gets.
_METHODS = {
    name.encode(): name
    for name in (
        "GET HEAD POST PUT PATCH DELETE OPTIONS TRACE COPY LOCK MKCOL MOVE PROPFIND PROPPATCH "
        "SEARCH UNLOCK BIND REBIND UNBIND ACL REPORT MKACTIVITY CHECKOUT MERGE MKCALENDAR LINK "
        "UNLINK PURGE NOTIFY SUBSCRIBE UNSUBSCRIBE"
    ).split()
}
#: Header fields that a proxy adds: see `proxy.TrustedProxies.forwarded`.
FORWARDING = frozenset((b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host"))
#: Header fields that the server reads.
_SERVER_FIELDS = FORWARDING | frozenset(
    (
        b"host",
        b"connection",
        b"content-length",
        b"transfer-encoding",
        b"expect",
        b"x-request-id",
        b"traceparent",
    )
)


class RequestHead:
    """A valid request line and header, and the framing of the body."""

    def __init__(self, data: bytes, match: re.Match[bytes], max_body_bytes: int) -> None:
        """`match` is that of `_HEAD` at the begin of `data`. Raises: HttpError."""
        method, target, minor = match.groups()
        known = _METHODS.get(method)
        if known is None:
            raise HttpError(501, "method_unknown", "this method is not served")
        self.method = known
        #: Origin-form, or "*" with OPTIONS; an absolute-form is already reduced.
        self.target = target
        self.version = "1.0" if minor == b"0" else "1.1"
        #: Names in lower case, values stripped.
        self.headers: list[tuple[bytes, bytes]] = []
        #: The fields of `_SERVER_FIELDS`; repeated ones joined with ", ".
        self.server_fields: dict[bytes, bytes] = {}
        #: Bytes of the input that the head takes.
        self.end = match.end()
        #: Bytes of the body; 0 with `chunked`.
        self.length = 0
        self.chunked = False
        self.keep_alive = minor != b"0"
        self.expects_continue = False
        headers, server_fields = self.headers, self.server_fields
        fields = data[match.end(3) + 2 : self.end - 4]
        for line in fields.split(b"\r\n") if fields else ():
            name, _, value = line.partition(b":")
            name, value = name.lower(), value.strip(b" \t")
            headers.append((name, value))
            if name in _SERVER_FIELDS:
                before = server_fields.get(name)
                server_fields[name] = value if before is None else before + b", " + value
        host = server_fields.get(b"host")
        if host is None:
            if minor != b"0":
                raise bad_request("the Host header is missing")
        elif _HOST.fullmatch(host) is None:
            raise bad_request("the Host header is repeated or malformed")
        if target[0] != 47:  # "/"
            self._reduce_target()
        if len(server_fields) > 1 or host is None:
            self._read_framing(max_body_bytes)

    def _reduce_target(self) -> None:
        """Reduce an absolute-form to origin-form; its authority replaces Host (RFC 9112 3.2.2)."""
        if self.target == b"*" and self.method == "OPTIONS":
            return
        match = _ABSOLUTE.fullmatch(self.target)
        if match is None or _HOST.fullmatch(match[1]) is None:
            raise bad_request("the request target is malformed")
        rest = match[2] or b"/"
        self.target = rest if rest[:1] == b"/" else b"/" + rest
        self.replace_host(match[1])

    def replace_host(self, host: bytes) -> None:
        """Put another Host in place of the one in the head."""
        self.server_fields[b"host"] = host
        self.headers = [field for field in self.headers if field[0] != b"host"]
        self.headers.append((b"host", host))

    def _read_framing(self, max_body_bytes: int) -> None:
        server_fields = self.server_fields
        connection = server_fields.get(b"connection")
        if connection is not None:
            options = [option.strip(b" \t") for option in connection.lower().split(b",")]
            if b"close" in options:
                self.keep_alive = False
            elif b"keep-alive" in options:
                self.keep_alive = True
        length = server_fields.get(b"content-length")
        encoding = server_fields.get(b"transfer-encoding")
        if encoding is not None:
            if length is not None:
                raise bad_request("Content-Length and Transfer-Encoding exclude each other")
            if self.version == "1.0":
                raise bad_request("HTTP/1.0 has no Transfer-Encoding")
            if encoding.lower() != b"chunked":
                reason = "only chunked is understood, and once"
                raise HttpError(501, "transfer_coding_unknown", reason)
            self.chunked = True
        elif length is not None:
            if _DIGITS.fullmatch(length) is None:
                raise bad_request("Content-Length is repeated or not a number")
            self.length = int(length)
            if self.length > max_body_bytes:
                raise _body_too_large()
        expect = server_fields.get(b"expect")
        if expect is not None and self.version != "1.0":  # RFC 9110 10.1.1
            if expect.lower() != b"100-continue":
                raise HttpError(417, "expectation_failed", "only 100-continue can be expected")
            self.expects_continue = True


class HeadParser:
    """Parses one head after the other from the bytes of a connection."""

    def __init__(self) -> None:
        #: Bytes of an incomplete head that were examined; 0 before its first line is complete.
        self._examined = 0

    def parse(self, data: bytes, config: HttpConfig) -> RequestHead | None:
        """The head that `data` begins with, or None when more bytes are needed.

        Raises: HttpError; it depends only on the bytes, never on how they were cut.
        """
        if self._examined and self._has_only_part_of_a_line(data, config):
            return None
        match = _HEAD.match(data)
        if match is None:
            if data[:1] == b"\r":
                return self._parse_after_blank_line(data, config)
            _examine(data, config)
            self._examined = len(data) if b"\n" in data else 0
            return None
        end, line_end = match.end(), match.end(3)
        if (
            line_end > config.max_request_line_bytes
            or end - line_end - 4 > config.max_header_bytes
            # A field takes four bytes at least, so few heads have to be counted.
            or (end > 4 * config.max_headers and data.count(b"\n", 0, end) - 2 > config.max_headers)
        ):
            _examine(data, config)
        self._examined = 0
        return RequestHead(data, match, config.max_body_bytes)

    def _has_only_part_of_a_line(self, data: bytes, config: HttpConfig) -> bool:
        """Whether `parse` can wait for more: else a head in single bytes takes quadratic time."""
        new = data[self._examined - 1 :]  # with the byte before: it may be half a line end
        if b"\n" in new or b"\r" in new or len(data) > config.max_header_bytes:
            return False
        self._examined = len(data)
        return True

    def _parse_after_blank_line(self, data: bytes, config: HttpConfig) -> RequestHead | None:
        """Skip one empty line before the head (RFC 9112 2.2)."""
        rest = data[2:]
        if data[:2] != b"\r\n"[: len(data)] or rest[:1] == b"\r":
            raise bad_request("this is not HTTP")
        self._examined = 0
        head = self.parse(rest, config) if rest else None
        if head is not None:
            head.end += 2
        return head


def _examine(data: bytes, config: HttpConfig) -> None:
    """Raises: HttpError for the first fault of `data`, if it cannot become a valid head."""
    if data and _METHOD.match(data) is None:
        raise bad_request("this is not HTTP")
    end = data.find(b"\n") + 1
    if (end - 2 if end else len(data) - 1) > config.max_request_line_bytes:
        raise HttpError(414, "request_line_too_long", "the request line is too long")
    if not end:
        return
    if _REQUEST_LINE.fullmatch(data, 0, end) is None:
        if _OTHER_VERSION.fullmatch(data, 0, end) is not None:
            raise HttpError(505, "version_unknown", "only HTTP/1.0 and HTTP/1.1 are served")
        raise bad_request("the request line is malformed")
    _examine_fields(data, end, config)


def _examine_fields(data: bytes, begin: int, config: HttpConfig) -> None:
    end, fields = begin, 0
    while end < len(data):
        line_end = data.find(b"\n", end) + 1
        if data[end] == 13:  # "\r": the empty line
            if data[end : end + 2] not in (b"\r\n", b"\r"):
                raise bad_request("a header line is malformed")
            return
        if (line_end or len(data)) - begin > config.max_header_bytes:
            raise _header_too_large("the header is too large")
        if not line_end:
            return
        if _FIELD_LINE.fullmatch(data, end, line_end) is None:
            raise bad_request("a header line is malformed")
        fields += 1
        if fields > config.max_headers:
            raise _header_too_large("there are too many header lines")
        end = line_end


_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:@+=/-]{1,64}")
_REQUEST_ID_LINE = re.compile(
    rb"\r\nx-request-id:[ \t]*([A-Za-z0-9._:@+=/-]{1,64})[ \t]*(?=\r\n)", re.IGNORECASE
)
_FIRST_LINE = re.compile(rb"(?:\r\n)?([A-Za-z]{1,32}) ([!-~]+)")
#: Later versions than 00 may be longer than its 55 characters.
_MAX_TRACEPARENT = 128
#: Bytes of a refused head in which its method and target are looked for.
_MAX_FIRST_LINE = 8192


def request_id_of(head: RequestHead) -> str | None:
    """The client's X-Request-ID, when it is short and of safe characters."""
    given = head.server_fields.get(b"x-request-id")
    if given is None or _REQUEST_ID.fullmatch(given) is None:
        return None
    return given.decode("ascii")


def traceparent_of(head: RequestHead) -> str:
    """The client's traceparent, when it is valid; else ""."""
    given = head.server_fields.get(b"traceparent")
    if given is None:
        return ""
    text = given.decode("latin-1")
    return text if len(text) <= _MAX_TRACEPARENT and trace.parse(text) is not None else ""


def read_log_fields(data: bytes) -> tuple[str, bytes, str | None]:
    """(method, target, X-Request-ID) of a head that was refused, for its answer and the log.

    Without a request line the first two are "?" and "-", without an id the last is None.
    """
    line = _FIRST_LINE.match(data[:_MAX_FIRST_LINE])
    method, target = line.groups() if line is not None else (b"?", b"-")
    ids = _REQUEST_ID_LINE.findall(data.partition(b"\r\n\r\n")[0] + b"\r\n")
    return method.decode("ascii"), target, ids[0].decode("ascii") if len(ids) == 1 else None


# The body

# RFC 9112 7.1, without BWS before the size, which other servers may read differently.
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,16}+)(?:[ \t]*+;[\t -~\x80-\xff]*+)?+\r\n")
#: Bytes of a chunk's size line; extensions are ignored.
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

    def __init__(self, length: int) -> None:
        #: Bytes still to come.
        self.left: int | None = length
        #: See `ChunkedBody`; here all bytes are decoded at once.
        self.undecoded = False

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """Returns (bytes of the body, bytes that follow it)."""
        left = self.left or 0
        if len(data) <= left:
            self.left = left - len(data)
            return data, b""
        self.left = 0
        return data[:left], data[left:]


class ChunkedBody:
    """A chunked body.

    size line --> data --> CRLF --> size line ... 0 --> trailer lines --> empty line: done
    """

    def __init__(self, max_bytes: int) -> None:
        #: Bytes still to come: None (unknown) until it is 0.
        self.left: int | None = None
        #: Received bytes wait to be decoded: `feed(b"")` goes on with them.
        self.undecoded = False
        self._max_bytes = max_bytes
        #: Announced bytes of data, and bytes of size lines and line ends, so far.
        self._size = self._framing = 0
        #: Data bytes of the current chunk still to come.
        self._chunk_left = 0
        self._trailer = 0
        #: What was received and is not decoded yet, from `_position` on.
        self._data = b""
        self._position = 0
        #: Decodes from a position; a plain function, as a bound method would be a reference cycle.
        self._state = ChunkedBody._size_line

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """Decode a bounded number of chunks; see `undecoded`.

        Returns (decoded bytes, bytes that follow the body). Raises: HttpError (400, 413, 431); it
        depends only on the bytes, never on how they were cut.
        """
        if data:
            data, position = self._data[self._position :] + data, 0
        else:
            data, position = self._data, self._position
        pieces: list[bytes] = []
        steps = 0
        while position < len(data) and self.left is None and steps < _STEPS_PER_TURN:
            after = self._state(self, data, position, pieces)
            if after == position:
                break  # an incomplete line
            position = after
            steps += 1
        done = self.left == 0
        self.undecoded = steps == _STEPS_PER_TURN and position < len(data) and not done
        if done or position == len(data):
            self._data, self._position = b"", 0
        else:
            self._data, self._position = data, position
        return b"".join(pieces), data[position:] if done else b""

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
            raise _body_too_large()
        end = begin + size
        if size and data[end : end + 2] == b"\r\n":  # mostly the whole chunk has arrived
            pieces.append(data[begin:end])
            return end + 2
        self._chunk_left = size
        self._state = ChunkedBody._chunk_data if size else ChunkedBody._trailer_line
        return begin

    def _chunk_data(self, data: bytes, position: int, pieces: list[bytes]) -> int:
        piece = data[position : position + self._chunk_left]
        pieces.append(piece)
        self._chunk_left -= len(piece)
        if not self._chunk_left:
            self._state = ChunkedBody._chunk_end
        return position + len(piece)

    def _chunk_end(self, data: bytes, position: int, pieces: list[bytes]) -> int:
        end = data[position : position + 2]
        if end == b"\r\n":
            self._state = ChunkedBody._size_line
            return position + 2
        if end != b"\r":
            raise bad_request("a chunk is longer than its size")
        return position

    def _trailer_line(self, data: bytes, position: int, pieces: list[bytes]) -> int:
        if data[position : position + 2] == b"\r\n":
            self.left = 0
            return position + 2
        end = data.find(b"\n", position) + 1
        length = (end or len(data)) - position
        if self._trailer + length > _MAX_TRAILER:
            raise _header_too_large("the trailer is too large")
        if not end:
            return position
        if _FIELD_LINE.fullmatch(data, position, end) is None:
            raise bad_request("a trailer line is malformed")
        self._trailer += length
        return end


Body = LengthBody | ChunkedBody


def body_of(head: RequestHead, max_body_bytes: int) -> Body | None:
    """The decoder of the body that a head announces; None when there is no body."""
    if head.chunked:
        return ChunkedBody(max_body_bytes)
    return LengthBody(head.length) if head.length else None
