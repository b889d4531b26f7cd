"""Requests answered 503, as many as come while the store is away: the first is a line of its own,
the rest is counted, told once a minute, and at the end.

Nothing tells this layer what is wrong, or when it is right again: the end is when no 503 came for
a while. Requests that need no store go on meanwhile.
"""

from __future__ import annotations

from cordata.log import fields, logger

log = logger("cordata.http")

#: Without a 503 for this long it is over.
QUIET_S = 5.0
AGAIN_S = 60.0


class Outage:
    """Of one server. Times are the loop's."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        #: None: there is none.
        self._since: float | None = None
        self._last = 0.0
        self._told = 0.0
        #: Not yet told, and all.
        self._count = 0
        self._total = 0
        self._reason = ""

    def refused(self, reason: str, now: float) -> bool:
        """Note a 503. Returns whether it is the first, which is logged as any other request."""
        self._last = now
        self._total += 1
        if self._since is None:
            self._since = self._told = now
            return True
        self._count += 1
        self._reason = reason or self._reason
        return False

    def look(self, now: float) -> None:
        """Say what is due."""
        if self._since is None:
            return
        if now - self._last >= QUIET_S:
            self.end()
        elif self._count and now - self._told >= AGAIN_S:
            log.error(
                "%d more requests in %.0f s were answered 503%s",
                self._count,
                now - self._told,
                f", the last with: {self._reason}" if self._reason else "",
                extra=fields(status=503, count=self._count),
            )
            self._told, self._count = now, 0

    def end(self) -> None:
        """It is over, or nobody will look any more."""
        if self._since is not None and self._total > 1:
            log.warning(
                "no more 503: there were %d within %.1f s",
                self._total,
                self._last - self._since,
                extra=fields(status=503, count=self._total),
            )
        self._clear()
