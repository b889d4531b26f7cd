"""Where each session of a client has its calls run: at which of the children on loan.

A session's first call goes to the manager, with the child that it had best run at; when the manager
lends the session there, the next ones go straight. A child is meant for as many calls as keep it
awake for a moment, before the next one is meant for any: whoever calls little should not wake all
children in turn. Then each gets as many as the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from time import monotonic

from cordata.core.pool.placing import AWAKE_US
from cordata.core.pool.sending import DEPTH
from cordata.pool.client.borrowed import Borrowed

#: Sessions that are remembered.
_MOST = 4096


class Places:
    """See the module."""

    def __init__(self) -> None:
        #: Until when it is lent there; 0.0: it is only meant to be.
        self._at: dict[str, tuple[Borrowed, float]] = {}

    def of(self, session: str) -> tuple[Borrowed | None, float]:
        """Its child, and until when it is lent there (monotonic)."""
        return self._at.get(session, (None, 0.0))

    def choose(self, session: str, among: Iterable[Borrowed], cost_us: float) -> Borrowed | None:
        """For one that has no child; None: they are all in long calls."""
        most = max(1, min(DEPTH, int(AWAKE_US / max(1.0, cost_us))))
        best, least = None, 0
        for one in among:
            calls = len(one.given) + len(one.waiting) + one.coming
            if not one.slow and (best is None or calls < least):
                best, least = one, calls
                if calls < most:
                    break
        if best is not None:
            self.put(session, best, 0.0)
        return best

    def put(self, session: str, at: Borrowed, until: float) -> None:
        """It is there, and lent until then."""
        if len(self._at) >= _MOST and session not in self._at:
            self._shrink()
        self._at[session] = (at, until)

    def forget(self, session: str) -> None:
        """Nothing is known of it."""
        self._at.pop(session, None)

    def leave(self, one: Borrowed) -> None:
        """The child takes no more calls."""
        for session in [session for session, known in self._at.items() if known[0] is one]:
            self.forget(session)

    def _shrink(self) -> None:
        """Forget those that are not lent, or half if they all are."""
        now = monotonic()
        over = [session for session, (_, until) in self._at.items() if until <= now]
        for session in over or list(self._at)[: _MOST // 2]:
            self.forget(session)
