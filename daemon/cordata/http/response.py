"""Response heads: checks the application's fields, and adds framing and connection fields."""

from __future__ import annotations

import http
import math
import re
from collections.abc import Iterable
from email.utils import formatdate
from functools import lru_cache

from cordata.core.error_document import error_document
from cordata.http.parser import HttpError

_FIELD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]++: [\t -~\x80-\xff]*+\r\n")
#: Fields that the application may set, but that this layer reads or replaces.
_OWN = frozenset(
    (
        b"connection",
        b"content-length",
        b"date",
        b"keep-alive",
        b"server",
        b"transfer-encoding",
        b"x-request-id",
    )
)
#: Longer values rarely repeat (cookies, locations): they are checked, but not cached.
_MAX_CACHED = 100

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
SERVER_LINE = b"server: cordata\r\n"


def _status_line(status: int) -> bytes:
    try:
        phrase = http.HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    return f"HTTP/1.1 {status} {phrase}\r\n".encode()


_STATUS_LINES = {status: _status_line(status) for status in range(200, 1000)}


def date_line(at_s: float) -> bytes:
    """The Date field for a time in seconds since the epoch."""
    return f"date: {formatdate(at_s, usegmt=True)}\r\n".encode()


class Unsendable(ValueError):
    """A status or a field that must not be sent; the text names it, without its value."""


class ResponseHead:
    """Status and fields of `http.response.start`, and the framing of the body."""

    def __init__(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Raises: Unsendable for a status or field that must not be sent (response splitting)."""
        line = _STATUS_LINES.get(status)
        if line is None:
            raise Unsendable(f"{status!r} is not the status of a final response")
        self.status = status
        #: Content-Length: declared, or set by `encode` from a body that is known whole.
        self.length: int | None = None
        self.chunked = False
        #: The application wants the connection closed.
        self.close = False
        #: No body follows, whatever the application sends.
        self.bodyless = status == 204 or status == 304
        self._dated = self._named = False
        self._lines = lines = [line]
        for name, value in headers:
            lower = name.lower()
            if lower in _OWN:
                self._take(lower, value)
            elif len(value) <= _MAX_CACHED:
                lines.append(_field_line(name, value))
            else:
                lines.append(_field_line.__wrapped__(name, value))

    def _take(self, name: bytes, value: bytes) -> None:
        if name == b"content-length":
            if not value.isdigit() or len(value) > 18 or self.length not in (None, int(value)):
                raise Unsendable("Content-Length is malformed or declared twice")
            self.length = int(value)
        elif name == b"connection":
            self.close = self.close or b"close" in value.lower()
        elif name == b"date":
            self._dated = True
            self._lines.append(_field_line(name, value))
        elif name == b"server":
            self._named = True
            self._lines.append(_field_line(name, value))

    def encode(
        self,
        *,
        method: str,
        version: str,
        keep_alive: bool,
        body_bytes: int | None,
        extra_lines: bytes,
    ) -> bytes:
        """The bytes up to the body; `chunked`, `length`, `close` and `bodyless` are final then.

        `body_bytes` is the size of the body if all of it is known. `extra_lines` are the Date and
        X-Request-ID lines.
        """
        lines = self._lines
        if method == "HEAD":
            self.bodyless = True
        if self.status == 204:
            self.length = None
        elif self.bodyless:
            if method == "HEAD" and body_bytes and self.length is None:
                self.length = body_bytes  # what GET would send
        elif self.length is None:
            if body_bytes is not None:
                self.length = body_bytes
            elif version == "1.1":
                self.chunked = True
                lines.append(b"transfer-encoding: chunked\r\n")
            else:
                self.close = True  # the end of the connection is the end of the body
        if self.length is not None:
            lines.append(b"content-length: %d\r\n" % self.length)
        if not self._named:
            lines.append(SERVER_LINE)
        if self._dated:
            extra_lines = extra_lines[extra_lines.index(b"\n") + 1 :]
        lines.append(extra_lines)
        if self.close or not keep_alive:
            self.close = True
            lines.append(b"connection: close\r\n\r\n")
        elif version == "1.0":
            lines.append(b"connection: keep-alive\r\n\r\n")
        else:
            lines.append(b"\r\n")
        return b"".join(lines)


@lru_cache(maxsize=512)
def _field_line(name: bytes, value: bytes) -> bytes:
    line = b"%b: %b\r\n" % (name, value)
    if _FIELD.fullmatch(line) is None:
        raise Unsendable(f"the response header {name!r} cannot be sent: bad name or value")
    return line


def error_parts(
    status: int,
    code: str,
    reason: str,
    request_id: str,
    retry_after_s: float | None = None,
    *,
    text: str | None = None,
) -> tuple[ResponseHead, bytes]:
    """A response of the server's own: JSON with a stable code, a sentence and the request id.

    With `text` it is a line of plain text that begins with it (`App.mount`).
    """
    if text is None:
        kind, body = b"application/json", error_document(code, reason, request_id)
    else:
        kind, body = b"text/plain; charset=utf-8", f"{text}{reason}\n".encode()
    headers = [(b"content-type", kind)]
    if retry_after_s is not None:
        headers.append((b"retry-after", b"%d" % max(1, math.ceil(retry_after_s))))
    return ResponseHead(status, headers), body


def error_response(
    error: HttpError, request_id: str, method: str, date_line: bytes, text: str | None = None
) -> bytes:
    """The whole response to a refused request, after which the connection closes.

    `text`: see `error_parts`.
    """
    head, body = error_parts(error.status, error.code, error.reason, request_id, text=text)
    extra_lines = b"%bx-request-id: %b\r\n" % (date_line, request_id.encode())
    encoded = head.encode(
        method=method,
        version="1.1",
        keep_alive=False,
        body_bytes=len(body),
        extra_lines=extra_lines,
    )
    return encoded if head.bodyless else encoded + body
