"""One structured line per refused or failed request; never a body, a query string or a secret."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from urllib.parse import unquote

from cordata import events
from cordata.http.asgi import Misuse
from cordata.http.response import Unsendable
from cordata.log import fields, logger, place, what

log = logger("cordata.http")

#: Status of a request whose client left before its response was whole (as nginx writes it).
CLIENT_GONE = 499
#: A method, a coding or a version that nobody promised: any scanner can have these.
_NOT_OURS = (501, 505)
_MAX_PATH = 200
#: Bytes of a target that are looked at.
_MAX_READ = 4096
_NOTHING_CUT: Mapping[str, int] = {}
#: Anywhere, a segment that may be a key (long, with a digit) is cut to four characters.
_SECRET = re.compile(r"(?<=/)(?=[^/]*[0-9])([^/]{4})[^/]{16,}")
_UNSAFE = re.compile(r"[^!-~]")
_SLASHES = re.compile(r"/+")


def loggable_path(target: bytes, logged_segments: Mapping[str, int] = _NOTHING_CUT) -> str:
    """A request target without its query and without secrets: those of webhooks travel in paths.

    `logged_segments`: of a path below each of these prefixes so many segments are shown, whatever
    the others are made of, and wherever the prefix stands: a target that is not served, or that a
    proxy made longer, has its secret, too.
    """
    path = target.partition(b"?")[0][:_MAX_READ].decode("latin-1")
    if logged_segments:
        path = _without_secrets(path, logged_segments)
    return _SECRET.sub(r"\1...", _UNSAFE.sub("?", path))[:_MAX_PATH]


def _without_secrets(path: str, logged_segments: Mapping[str, int]) -> str:
    """A path cut behind the last segment that may be shown; as it was, when none is cut."""
    plain = _SLASHES.sub("/", unquote(path, "latin-1"))
    lower = plain.lower()
    for prefix, count in logged_segments.items():
        begin = lower.find(prefix.lower() + "/")
        if begin >= 0:
            begin += len(prefix) + 1
            shown = plain[begin:].split("/")
            if len(shown) > count:
                return plain[:begin] + "/".join([*shown[:count], "..."])
    return path


def is_refusal(status: int) -> bool:
    """Whether a status is the client's doing, so that anybody can have it."""
    return 400 <= status < 500 or status in _NOT_OURS


def told(error: BaseException) -> str:
    """Type and place; the text of an application's error may quote the request, ours is shown."""
    if isinstance(error, Misuse | Unsendable):
        return f"{type(error).__name__}: {error}"[:200]
    return f"{what(error)} at {place(error)}"


def report(
    *,
    status: int,
    method: str,
    target: bytes,
    peer: str,
    reason: str,
    request_id: str,
    error: BaseException | None = None,
    duration_ms: float | None = None,
    quiet: bool = False,
    logged_segments: Mapping[str, int] = _NOTHING_CUT,
) -> None:
    """Write the line of one request: 4xx (and 501, 505) refused, other 5xx and `CLIENT_GONE`
    failed, the rest served. `quiet`: it is counted elsewhere, and a line at level debug only.
    `logged_segments`: see `loggable_path`.
    """
    if status == CLIENT_GONE:
        level, event, verb = logging.INFO, events.REQUEST_FAILED, "failed"
    elif is_refusal(status):
        level, event, verb = logging.WARNING, events.REQUEST_REFUSED, "refused"
    elif status >= 500:
        level, event, verb = logging.ERROR, events.REQUEST_FAILED, "failed"
    else:
        level, event, verb = logging.INFO, events.REQUEST_SERVED, "served"
        if error is not None:
            level, event, verb = logging.ERROR, events.REQUEST_FAILED, "failed after its response"
    if quiet:
        level = logging.DEBUG
    if not log.isEnabledFor(level):
        return
    path = loggable_path(target, logged_segments)
    values: dict[str, object] = {
        "method": method,
        "path": path,
        "status": status,
        "peer": peer,
        "reason": reason,
        "request_id": request_id,
    }
    if duration_ms is not None:
        values["duration_ms"] = round(duration_ms, 1)
    log.log(
        level,
        "%s %s from %s %s: %d%s",
        method,
        path,
        peer,
        verb,
        status,
        f" {reason}" if reason else "",
        exc_info=error,
        extra=fields(event, **values),
    )
