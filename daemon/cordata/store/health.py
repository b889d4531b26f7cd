"""Whether the store can be written. Each change is logged once.

    ok --storage error--> full | unavailable --a write commits--> ok

While it is not ok, every write is refused at once; only the store itself tries one from time to
time (`RuntimeStore._heal`).
On SQLite, "full" ends only when there is room for more than the write that was committed.
"""

from __future__ import annotations

from collections.abc import Callable

from cordata import events, log
from cordata.clock import monotonic
from cordata.errors import StoreFull, StoreUnavailable, Unclear

_log = log.logger("cordata.store")

#: Pause between attempts while the store is not ok; doubles while it flaps, up to `_PAUSE_MAX_S`.
_PAUSE_S = 0.5
_PAUSE_MAX_S = 4.0
#: A store that fails again within this time after it was ok flaps.
_STEADY_S = 5.0

OnState = Callable[[str], None]
OnCommit = Callable[[float], None]


class Busy(StoreUnavailable):
    """A failure that does not make the store unhealthy: overload, a lock, one lost connection."""


class Health:
    """The state of a store: `state` is "ok", "full" or "unavailable"."""

    def __init__(self, *, has_room: Callable[[], bool] = lambda: True) -> None:
        """`has_room`: whether a store that was full can be expected to take other writes, too,
        after one that was committed.
        """
        self.state = "ok"
        #: Why it is not ok; "": it is.
        self.reason = ""
        #: Called with the state at each change, on the loop's thread.
        self.on_state: OnState = lambda state: None
        #: Called with the seconds of each COMMIT.
        self.on_commit: OnCommit = lambda seconds: None
        self._has_room = has_room
        self._hint: str | None = None
        #: Seconds between attempts.
        self.pause_s = _PAUSE_S
        #: When it became ok or not ok. At first: long ago, so that a failure at the start is not
        #: taken for flapping.
        self._since = float("-inf")

    def error(self) -> StoreUnavailable | None:
        """The error for a write now; None: the store is ok."""
        if self.state == "ok":
            return None
        kind = StoreFull if self.state == "full" else StoreUnavailable
        return kind(self.reason, hint=self._hint)

    def failed(self, error: BaseException | None, *, now: float | None = None) -> bool:
        """A write failed; on PostgreSQL also a read, or a connection. Returns whether the store is
        at fault (its disk or file, or the server), so that every other write would fail, too; only
        then its state changes.
        """
        if not isinstance(error, StoreUnavailable) or isinstance(error, Busy | Unclear):
            return False
        now = monotonic() if now is None else now
        if self.state == "ok":
            flaps = now - self._since < _STEADY_S
            self.pause_s = min(self.pause_s * 2, _PAUSE_MAX_S) if flaps else _PAUSE_S
        state = "full" if isinstance(error, StoreFull) else "unavailable"
        if state == self.state:
            return True
        self._change(state, str(error), error.hint, now)
        _log.error(
            "the store takes no writes: %s",
            log.with_hint(error),
            extra=log.fields(
                events.DISK_FULL if state == "full" else events.STORE_FAILED,
                store_state=state,
                hint=error.hint or "",
            ),
        )
        return True

    def succeeded(self, commit_s: float | None = None, *, now: float | None = None) -> None:
        """A write was committed, by a COMMIT of `commit_s` seconds; None: it is not known."""
        if commit_s is not None:
            self.on_commit(commit_s)
        if self.state == "ok" or (self.state == "full" and not self._has_room()):
            return
        now = monotonic() if now is None else now
        lasted = now - self._since
        self._change("ok", "", None, now)
        _log.warning(
            "the store takes writes again after %.1f s",
            lasted,
            extra=log.fields(events.STORE_HEALED, store_state="ok"),
        )

    def _change(self, state: str, reason: str, hint: str | None, now: float) -> None:
        if "ok" in (state, self.state):  # from full to unavailable it is the same failure
            self._since = now
        self.state, self.reason, self._hint = state, reason, hint
        self.on_state(state)
