"""What the connection layer answers by itself: a status, a stable code, a sentence."""

from __future__ import annotations

from cordata.errors import ProtocolError


class Refused(ProtocolError):
    """A request that the application does not get; its connection closes after the answer."""

    def __init__(self, status: int, code: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        #: Stable, for programs; goes into the body and the log.
        self.code = code
        #: One sentence, safe to send: it never quotes the request.
        self.reason = reason


def bad_request(reason: str) -> Refused:
    """400: the bytes are not a request that RFC 9112 allows, or that we want."""
    return Refused(400, "bad_request", reason)


def line_too_long() -> Refused:
    """414: method, target and version exceed `max_request_line_bytes`."""
    return Refused(414, "request_line_too_long", "the request line is too long")


def header_too_large(reason: str) -> Refused:
    """431: more header bytes or lines than configured."""
    return Refused(431, "header_too_large", reason)


def body_too_large() -> Refused:
    """413: declared or sent more than `max_body_bytes`."""
    return Refused(413, "body_too_large", "the body is too large")


def too_slow(reason: str) -> Refused:
    """408: the client did not send in time."""
    return Refused(408, "request_timeout", reason)
