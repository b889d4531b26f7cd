"""The log of requests: one structured line per refused, failed or, if wanted, served request.

Never a body, a query string or a secret. Any client can cause a refused request with each request
that it sends, and the journal drops lines of all services when there are too many. So two kinds are
only counted: refused requests beyond 100 lines and one a second, and 503s after the first.
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
#: Without a 503 for this long the outage is over.
_OUTAGE_QUIET_S = 5.0
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
        self._refusals = _RefusalLimit()
        self._outage = _Outage()

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
        if not self._take_line(status, reason, now):
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

    def _take_line(self, status: int, reason: str, now: float) -> bool:
        """Whether the request gets a line, which counts towards the limit; else it is counted."""
        if status == 503:
            return self._outage.count(reason, now)
        return not _is_refusal(status) or self._refusals.count(status, now)

    def sweep(self, now: float) -> None:
        """Log the summaries that are due."""
        self._outage.sweep(now)
        self._refusals.sweep(now)

    def close(self, now: float) -> None:
        """Log the summaries of what was only counted."""
        self._outage.end()
        self._refusals.summarize(now)


class _RefusalLimit:
    """A token bucket for the lines of refused requests, and counters for the others."""

    def __init__(self) -> None:
        self._lines = float(REFUSAL_LINES)
        self._at = 0.0
        #: Requests without a line since `_since`, by status.
        self._counts: Counter[int] = Counter()
        self._since = 0.0

    def count(self, status: int, now: float) -> bool:
        """Whether a refused request gets a line; else it is counted."""
        self._lines = min(REFUSAL_LINES, self._lines + (now - self._at) * REFUSAL_LINES_PER_S)
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
        log.warning(
            "%d more requests in %.0f s were refused: %s",
            count,
            now - self._since,
            ", ".join(f"{self._counts[status]} x {status}" for status in sorted(self._counts)),
            extra=fields(events.REQUEST_REFUSED, count=count),
        )
        self._counts.clear()


class _Outage:
    """The 503s while the store is unavailable: the first is a line of its own, the rest is counted.

    This layer does not know when the store is available again: an outage ends when no 503 was sent
    for a while. Requests that need no store go on meanwhile.
    """

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        #: When the outage began; None: there is none.
        self._since: float | None = None
        self._last = 0.0
        self._summarized_at = 0.0
        #: 503s that are not logged yet, and all of this outage.
        self._count = 0
        self._total = 0
        self._reason = ""

    def count(self, reason: str, now: float) -> bool:
        """Note a 503. Returns whether it is the first, which gets a line."""
        self._last = now
        self._total += 1
        if self._since is None:
            self._since = self._summarized_at = now
            return True
        self._count += 1
        self._reason = reason or self._reason
        return False

    def sweep(self, now: float) -> None:
        if self._since is None:
            return
        if now - self._last >= _OUTAGE_QUIET_S:
            self.end()
        elif self._count and now - self._summarized_at >= _SUMMARY_EVERY_S:
            log.error(
                "%d more requests in %.0f s were answered 503%s",
                self._count,
                now - self._summarized_at,
                f", the last with: {self._reason}" if self._reason else "",
                extra=fields(status=503, count=self._count),
            )
            self._summarized_at, self._count = now, 0

    def end(self) -> None:
        if self._since is not None and self._total > 1:
            log.warning(
                "no more 503: there were %d within %.1f s",
                self._total,
                self._last - self._since,
                extra=fields(status=503, count=self._total),
            )
        self._clear()
