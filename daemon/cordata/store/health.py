"""Whether the store can be written: told once per change, tried again at a bounded cost.

    ok --storage error--> full | unavailable --a write commits--> ok

While it is not ok every write is refused at once, but for one attempt per pause.
"""

from __future__ import annotations

from collections.abc import Callable

from cordata import events, log
from cordata.clock import monotonic
from cordata.errors import StoreFull, StoreUnavailable

_log = log.logger("cordata.store")

#: Between attempts while the store is not ok; doubles while it flaps, see `_PAUSE_MAX_S`.
_PAUSE_S = 0.5
_PAUSE_MAX_S = 4.0
#: A state that lasted less than this was no recovery.
_STEADY_S = 5.0

OnState = Callable[[str, str], None]


class Health:
    """`state` is "ok", "full" or "unavailable"."""

    def __init__(self, on_state: OnState | None = None) -> None:
        self.state = "ok"
        #: Why it is not ok.
        self.reason = ""
        #: Called with state and reason at each change, on the loop's thread.
        self.on_state = on_state
        self._hint: str | None = None
        self._pause_s = _PAUSE_S
        self._next_deadline = 0.0
        self._changed = monotonic()

    @property
    def pause_s(self) -> float:
        """Seconds between attempts."""
        return self._pause_s

    def refusal(self) -> StoreUnavailable | None:
        """None: go ahead (and when the store is not ok, this call is the attempt)."""
        if self.state == "ok":
            return None
        now = monotonic()
        if now >= self._next_deadline:
            self._next_deadline = now + self._pause_s
            return None
        kind = StoreFull if self.state == "full" else StoreUnavailable
        return kind(self.reason, hint=self._hint)

    def failed(self, error: StoreUnavailable) -> None:
        """A write failed because of the disk or the file."""
        self._next_deadline = monotonic() + self._pause_s
        state = "full" if isinstance(error, StoreFull) else "unavailable"
        if state == self.state:
            return
        if self._change(state, str(error), error.hint) < _STEADY_S:
            self._pause_s = min(self._pause_s * 2, _PAUSE_MAX_S)
        _log.error(
            "the store takes no writes: %s",
            error,
            extra=log.fields(
                events.DISK_FULL if state == "full" else events.STORE_FAILED,
                store_state=state,
                hint=error.hint or "",
            ),
        )

    def succeeded(self) -> None:
        """A write was committed."""
        if self.state == "ok":
            return
        lasted = self._change("ok", "", None)
        if lasted > _STEADY_S:
            self._pause_s = _PAUSE_S
        _log.warning(
            "the store takes writes again after %.1f s",
            lasted,
            extra=log.fields(events.STORE_HEALED, store_state="ok"),
        )

    def _change(self, state: str, reason: str, hint: str | None) -> float:
        """Change the state; returns for how many seconds the one before lasted."""
        now = monotonic()
        lasted, self._changed = now - self._changed, now
        self.state, self.reason, self._hint = state, reason, hint
        if self.on_state is not None:
            self.on_state(state, reason)
        return lasted
