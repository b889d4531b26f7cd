"""The log of requests: one structured line per refused, failed or, if wanted, served request.

Never a body, a query string or a secret. Any client can cause a refused request with each request
that it sends, and journald drops lines of a unit that writes too many. So two kinds are counted
beyond a limit: refused requests beyond 100 lines and one a second, and 503s beyond one a minute.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Mapping
from urllib.parse import unquote

from cordata import events
from cordata.log import fields, logger
from cordata.trace import trace_of

log = logger("cordata.http")

#: Status of a request whose client left before its response was whole (as nginx writes it).
CLIENT_GONE = 499
#: Lines for refused requests at once, and per second in the long run.
REFUSAL_LINES, REFUSAL_LINES_PER_S = 100, 1.0
#: Seconds between two summaries of counted requests.
_SUMMARY_EVERY_S = 60.0
#: Unsupported method, coding or version: any scanner can cause these.
_NOT_OURS = (501, 505)
_MAX_PATH = 200
#: Bytes of a target that are read.
_MAX_READ = 4096
_NOTHING_CUT: Mapping[str, int] = {}
#: A segment that may be a key (long, with a digit) is cut to four characters.
_SECRET = re.compile(r"(?<=/)(?=[^/]*[0-9])([^/]{4})[^/]{16,}")
_UNSAFE = re.compile(r"[^!-~]")
_SLASHES = re.compile(r"/+")


def loggable_path(target: bytes, logged_segments: Mapping[str, int] = _NOTHING_CUT) -> str:
    """A request target without query and secrets: the paths of webhooks contain secrets.

    `logged_segments`: path prefix -> number of segments shown below it. The prefix may be anywhere
    in the path: a target that is not served, or that a proxy made longer, has a secret, too.
    """
    path = target.partition(b"?")[0][:_MAX_READ].decode("latin-1")
    if logged_segments:
        path = _cut_segments(path, logged_segments)
    return _SECRET.sub(r"\1...", _UNSAFE.sub("?", path))[:_MAX_PATH]


def _cut_segments(path: str, logged_segments: Mapping[str, int]) -> str:
    """The path, cut behind the last segment that may be shown."""
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


def _is_refusal(status: int) -> bool:
    """Whether the client caused the status, so that any client can cause such lines."""
    return 400 <= status < 500 or status in _NOT_OURS


class AccessLog:
    """The access log of one server. Times are those of the event loop."""

    def __init__(self, logged_segments: Mapping[str, int] | None = None) -> None:
        """`logged_segments`: see `loggable_path`."""
        self.logged_segments = dict(logged_segments or {})
        self._refusals = _LineLimit(
            REFUSAL_LINES,
            REFUSAL_LINES_PER_S,
            logging.WARNING,
            events.REQUEST_REFUSED,
            "were refused",
        )
        # The store is unavailable, or this worker has no valid configuration.
        self._unavailable = _LineLimit(
            1, 1 / _SUMMARY_EVERY_S, logging.ERROR, events.REQUEST_FAILED, "failed"
        )

    def write(
        self,
        *,
        status: int,
        method: str,
        target: bytes,
        peer: str,
        reason: str,
        request_id: str,
        traceparent: str = "",
        now: float,
        error: BaseException | None = None,
        duration_ms: float | None = None,
    ) -> None:
        """Write the line of one request, or count it (then it is a line at level debug)."""
        if status == CLIENT_GONE:
            level, event, verb = logging.INFO, events.REQUEST_FAILED, "failed"
        elif _is_refusal(status):
            level, event, verb = logging.WARNING, events.REQUEST_REFUSED, "refused"
        elif status >= 500:
            level, event, verb = logging.ERROR, events.REQUEST_FAILED, "failed"
        elif error is not None:
            level, event, verb = logging.ERROR, events.REQUEST_FAILED, "failed after its response"
        else:
            level, event, verb = logging.INFO, events.REQUEST_SERVED, "served"
        if not self._take_line(status, now):
            level = logging.DEBUG
        if not log.isEnabledFor(level):
            return
        path = loggable_path(target, self.logged_segments)
        values: dict[str, object] = {
            "method": method,
            "path": path,
            "status": status,
            "peer": peer,
            "reason": reason,
            "request_id": request_id,
            **trace_of(request_id, traceparent).log_fields(),
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

    def _take_line(self, status: int, now: float) -> bool:
        """Whether the request gets a line; else it is counted."""
        if status == 503:
            return self._unavailable.count(status, now)
        return not _is_refusal(status) or self._refusals.count(status, now)

    def sweep(self, now: float) -> None:
        """Log the summaries that are due."""
        for limit in (self._refusals, self._unavailable):
            limit.sweep(now)

    def close(self, now: float) -> None:
        """Log the summaries of what was only counted."""
        for limit in (self._refusals, self._unavailable):
            limit.summarize(now)


class _LineLimit:
    """A token bucket for the lines of one kind of requests, and counters for those beyond it."""

    def __init__(self, lines: int, per_s: float, level: int, event: str, verb: str) -> None:
        self._max_lines, self._per_s = lines, per_s
        self._level, self._event, self._verb = level, event, verb
        self._lines = float(lines)
        self._at = 0.0
        #: Requests without a line since `_since`, by status.
        self._counts: Counter[int] = Counter()
        self._since = 0.0

    def count(self, status: int, now: float) -> bool:
        """Whether a request gets a line; else it is counted."""
        self._lines = min(self._max_lines, self._lines + (now - self._at) * self._per_s)
        self._at = now
        if self._lines >= 1:
            self._lines -= 1
            return True
        if not self._counts:
            self._since = now
        self._counts[status] += 1
        return False

    def sweep(self, now: float) -> None:
        if now - self._since >= _SUMMARY_EVERY_S:
            self.summarize(now)

    def summarize(self, now: float) -> None:
        if not self._counts:
            return
        count = self._counts.total()
        log.log(
            self._level,
            "%d more requests in %.0f s %s: %s",
            count,
            now - self._since,
            self._verb,
            ", ".join(f"{self._counts[status]} x {status}" for status in sorted(self._counts)),
            extra=fields(self._event, count=count),
        )
        self._counts.clear()
