"""The grammar of a request head (RFC 9112, no obs-fold, no bare LF), and what is wrong with one."""

from __future__ import annotations

import re

from cordata.config.sections import HttpConfig
from cordata.http.refused import Refused, bad_request, header_too_large, line_too_long

# Possessive quantifiers (++): a head that does not match fails in linear time.
_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]"
_START = rb"(" + _TOKEN + rb"{1,32}+) ([!\"$-~]++) HTTP/"
# A higher minor version than ours is read as ours (RFC 9110 2.5, 6.2).
_LINE = _START + rb"1\.([0-9])\r\n"
_FIELD = _TOKEN + rb"++:[\t -~\x80-\xff]*+\r\n"
HEAD = re.compile(_LINE + rb"(?:" + _FIELD + rb")*+\r\n")
_REQUEST_LINE = re.compile(_LINE)
_FIELD_LINE = re.compile(_FIELD)
_METHOD = re.compile(_TOKEN + rb"{1,32}+(?: |\Z)")
_OTHER_VERSION = re.compile(_START + rb"[02-9]\.[0-9]\r\n")
#: reg-name, IPv4 or [IPv6], and a port. No comma: that is how a second Host shows.
HOST = re.compile(rb"(?:[A-Za-z0-9._~%!$&'()*+;=-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{0,5})?")
DIGITS = re.compile(rb"[0-9]{1,18}")
ABSOLUTE = re.compile(rb"https?://([^/?@]*)([/?].*)?", re.IGNORECASE)

#: Known to both parsers, so that both versions serve the same. The value is what `scope` gets.
METHODS = {
    name.encode(): name
    for name in (
        "GET HEAD POST PUT PATCH DELETE OPTIONS TRACE COPY LOCK MKCOL MOVE PROPFIND PROPPATCH "
        "SEARCH UNLOCK BIND REBIND UNBIND ACL REPORT MKACTIVITY CHECKOUT MERGE MKCALENDAR LINK "
        "UNLINK PURGE NOTIFY SUBSCRIBE UNSUBSCRIBE"
    ).split()
}


def has_too_many(data: bytes, end: int, config: HttpConfig) -> bool:
    """Whether a whole head of `end` bytes has more than `max_headers` lines."""
    return data.count(b"\n", 0, end) - 2 > config.max_headers


def examine(data: bytes, config: HttpConfig) -> None:
    """Raises: Refused when `data` cannot become an acceptable head, for its first fault."""
    if data and _METHOD.match(data) is None:
        raise bad_request("this is not HTTP")
    end = data.find(b"\n") + 1
    if (end - 2 if end else len(data) - 1) > config.max_request_line_bytes:
        raise line_too_long()
    if not end:
        return
    if _REQUEST_LINE.fullmatch(data, 0, end) is None:
        if _OTHER_VERSION.fullmatch(data, 0, end) is not None:
            raise Refused(505, "version_unknown", "only HTTP/1.0 and HTTP/1.1 are served")
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
            raise header_too_large("the header is too large")
        if not line_end:
            return
        if _FIELD_LINE.fullmatch(data, end, line_end) is None:
            raise bad_request("a header line is malformed")
        fields += 1
        if fields > config.max_headers:
            raise header_too_large("there are too many header lines")
        end = line_end
