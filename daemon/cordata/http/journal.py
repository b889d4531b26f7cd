"""One structured line per refused or failed request; never a body, a query string or a secret."""

from __future__ import annotations

import logging
import re

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
#: A segment that looks like a key (long, of one piece, with a digit) is cut to four characters.
_SECRET = re.compile(r"(?<=/)(?=[^/]*[0-9])([A-Za-z0-9_=-]{4})[A-Za-z0-9_=-]{16,}(?=/|$)")
_UNSAFE = re.compile(r"[^!-~]")


def loggable_path(target: bytes) -> str:
    """A request target without its query, with long tokens cut: webhook secrets travel in paths."""
    path = _UNSAFE.sub("?", target.partition(b"?")[0][:4096].decode("latin-1"))
    return _SECRET.sub(r"\1...", path)[:_MAX_PATH]


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
) -> None:
    """Write the line of one request: 4xx (and 501, 505) refused, other 5xx and `CLIENT_GONE`
    failed, the rest served. `quiet`: it is counted elsewhere, and a line at level debug only.
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
    path = loggable_path(target)
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
