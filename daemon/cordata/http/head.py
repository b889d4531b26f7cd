"""Request heads: our own strict grammar decides what is a request, httptools only splits it.

The old http-parser (httptools 0.1.1) is lenient where llhttp is strict, and the other way round.
So nothing reaches either before one regular expression has matched the whole head; what is left
for the parser has one meaning. The framing (Content-Length, Transfer-Encoding) is judged here, and
the body never passes through the parser. Grammar: RFC 9112, without obs-fold and bare LF.
"""

from __future__ import annotations

from re import Match

import httptools

from cordata.config.sections import HttpConfig
from cordata.http.grammar import ABSOLUTE, DIGITS, HEAD, HOST, METHODS, examine, has_too_many
from cordata.http.refused import Refused, bad_request, body_too_large

#: Header fields that mean something to this layer.
_SPECIAL = frozenset(
    (
        b"host",
        b"connection",
        b"content-length",
        b"transfer-encoding",
        b"expect",
        b"x-request-id",
        b"x-forwarded-for",
        b"x-forwarded-proto",
        b"x-forwarded-host",
        b"forwarded",
    )
)


class HeadReader:
    """Reads one head after the other from a connection's bytes; its fields hold the last one.

    `read` is the whole use; `on_header` is httptools' callback.
    """

    __slots__ = (
        "_host",
        "_parser",
        "_seen",
        "chunked",
        "config",
        "expect_continue",
        "headers",
        "keep_alive",
        "length",
        "method",
        "special",
        "target",
        "version",
    )

    def __init__(self, config: HttpConfig) -> None:
        self.config = config
        self.method = ""
        #: Origin-form, "*" with OPTIONS; an absolute-form is already cut down.
        self.target = b""
        self.version = "1.1"
        #: Names in lower case, values stripped.
        self.headers: list[tuple[bytes, bytes]] = []
        #: The fields of `_SPECIAL`; repeated ones joined with ", ".
        self.special: dict[bytes, bytes] = {}
        #: Bytes of the body; 0 with `chunked`.
        self.length = 0
        self.chunked = False
        self.keep_alive = True
        self.expect_continue = False
        #: The last Host found valid.
        self._host: bytes | None = None
        #: Bytes of an incomplete head that were examined; 0 before its first line is complete.
        self._seen = 0
        self._parser: httptools.HttpRequestParser | None = None

    def read(self, data: bytes) -> int:
        """Parse the head that `data` begins with.

        Returns its length, or 0 when more bytes are needed. Raises: Refused; it depends only on
        the bytes, never on how they were cut.
        """
        if self._seen and self._only_part_of_a_line(data):
            return 0
        match = HEAD.match(data)
        if match is None:
            if data[:1] == b"\r":
                return self._read_after_blank(data)
            examine(data, self.config)
            self._seen = len(data) if b"\n" in data else 0
            return 0
        end, line_end = match.end(), match.end(3)
        if (
            line_end > self.config.max_request_line_bytes
            or end - line_end - 4 > self.config.max_header_bytes
            or (end > 4 * self.config.max_headers and has_too_many(data, end, self.config))
        ):
            examine(data, self.config)
        self._seen = 0
        self._split(data if end == len(data) else data[:end], match)
        return end

    def _only_part_of_a_line(self, data: bytes) -> bool:
        """Whether examining can wait: else a client that sends single bytes costs us the square."""
        new = data[self._seen - 1 :]  # with the byte before: it may have been half a line end
        if b"\n" in new or b"\r" in new or len(data) > self.config.max_header_bytes:
            return False
        self._seen = len(data)
        return True

    def _read_after_blank(self, data: bytes) -> int:
        """Skip one empty line before the head (RFC 9112 2.2)."""
        rest = data[2:]
        if data[:2] != b"\r\n"[: len(data)] or rest[:1] == b"\r":
            raise bad_request("this is not HTTP")
        self._seen = 0
        end = self.read(rest) if rest else 0
        return end and end + 2

    def _split(self, head: bytes, match: Match[bytes]) -> None:
        """Let the parser call `on_header` for each field, then judge what they say."""
        method, target, minor = match.groups()
        known = METHODS.get(method)
        if known is None:
            raise Refused(501, "method_unknown", "this method is not served")
        self.method, self.target, self.headers, self.special = known, target, [], {}
        parser = self._parser
        if parser is None:
            parser = self._parser = httptools.HttpRequestParser(self)
        try:
            parser.feed_data(head)
        except httptools.HttpParserUpgrade:
            self._parser = None  # websockets and h2c are not offered: served as plain HTTP/1.1
        except httptools.HttpParserError:
            self._parser = None
            self._split_again(head)
        self._judge(minor != b"0")
        if self.length or self.chunked:
            self._parser = None  # it would wait for a body that goes another way

    def _split_again(self, head: bytes) -> None:
        """Collect the fields of a head that the parser refused though the grammar allows it.

        The two versions refuse different things and stop at different fields, so neither has the
        last word: `_judge` has.
        """
        self.headers, self.special = [], {}
        for line in head.split(b"\r\n")[1:-2]:
            name, _, value = line.partition(b":")
            self.on_header(name, value)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One field, in order."""
        name = name.lower()
        value = value.strip(b" \t")  # http-parser keeps trailing blanks
        self.headers.append((name, value))
        if name in _SPECIAL:
            before = self.special.get(name)
            self.special[name] = value if before is None else before + b", " + value

    def _judge(self, is_11: bool) -> None:
        """Host, target and framing. Raises: Refused."""
        special = self.special
        host = special.get(b"host")
        if host is None:
            if is_11:
                raise bad_request("the Host header is missing")
        elif host != self._host:
            if HOST.fullmatch(host) is None:
                raise bad_request("the Host header is repeated or malformed")
            self._host = host
        if self.target[0] != 47:  # "/"
            self._cut_target()
        self.version = "1.1" if is_11 else "1.0"
        self.keep_alive = is_11
        self.chunked = self.expect_continue = False
        self.length = 0
        if len(special) > 1 or host is None:
            self._judge_framing(is_11)

    def _judge_framing(self, is_11: bool) -> None:
        special = self.special
        connection = special.get(b"connection")
        if connection is not None:
            options = [option.strip(b" \t") for option in connection.lower().split(b",")]
            if b"close" in options:
                self.keep_alive = False
            elif b"keep-alive" in options:
                self.keep_alive = True
        length = special.get(b"content-length")
        encoding = special.get(b"transfer-encoding")
        if encoding is not None:
            _judge_encoding(encoding, length, is_11)
            self.chunked = True
        elif length is not None:
            if DIGITS.fullmatch(length) is None:
                raise bad_request("Content-Length is repeated or not a number")
            self.length = int(length)
            if self.length > self.config.max_body_bytes:
                raise body_too_large()
        expect = special.get(b"expect")
        if expect is not None and is_11:  # RFC 9110 10.1.1: ignored from HTTP/1.0
            if expect.lower() != b"100-continue":
                raise Refused(417, "expectation_failed", "only 100-continue can be expected")
            self.expect_continue = True

    def replace_host(self, host: bytes) -> None:
        """Put another Host in the place of what the head says."""
        self.special[b"host"] = host
        self.headers = [field for field in self.headers if field[0] != b"host"]
        self.headers.append((b"host", host))

    def close(self) -> None:
        """Break the cycle with the parser."""
        self._parser = None

    def _cut_target(self) -> None:
        """Reduce an absolute-form to origin-form; its authority replaces Host (RFC 9112 3.2.2)."""
        if self.target == b"*" and self.method == "OPTIONS":
            return
        match = ABSOLUTE.fullmatch(self.target)
        if match is None or HOST.fullmatch(match[1]) is None:
            raise bad_request("the request target is malformed")
        rest = match[2] or b"/"
        self.target = rest if rest[:1] == b"/" else b"/" + rest
        self.replace_host(match[1])


def _judge_encoding(encoding: bytes, length: bytes | None, is_11: bool) -> None:
    """Raises: Refused unless the body is plainly chunked and nothing else."""
    if length is not None:
        raise bad_request("Content-Length and Transfer-Encoding exclude each other")
    if not is_11:
        raise bad_request("HTTP/1.0 has no Transfer-Encoding")
    if encoding.lower() != b"chunked":
        raise Refused(501, "transfer_coding_unknown", "only chunked is understood, and once")
