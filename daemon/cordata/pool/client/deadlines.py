"""Deadlines of many items behind one timer of the event loop."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Hashable
from time import monotonic
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)
#: Least pause between two looks at all items: an item is told no more than this too late.
_PAUSE_S = 0.01
#: Where there are so many that a look takes long, the pause is so many times that.
_SHARE = 10


class Deadlines(Generic[T]):
    """Calls `due` with each item whose time has come, and has forgotten it by then.

    Most items are cleared long before: 70,000 a second, each with a minute to go. So nothing is
    sorted; when the earliest deadline that was set has passed, all items are looked at.
    """

    def __init__(self, due: Callable[[T], None]) -> None:
        self._due = due
        self._deadlines: dict[T, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self._not_before = 0.0

    def set(self, item: T, at: float) -> None:
        """At this time (monotonic), unless it is cleared or set anew before."""
        self._deadlines[item] = at
        if at < self._timer_at:
            self._arm(at)

    def clear(self, item: T) -> None:
        """The item is over."""
        self._deadlines.pop(item, None)

    def items(self) -> list[T]:
        """All of them, in no order."""
        return list(self._deadlines)

    def close(self) -> None:
        """No item is due any more."""
        self._deadlines.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        delay_s = max(at, self._not_before) - monotonic()
        self._timer = asyncio.get_running_loop().call_later(max(0.0, delay_s), self._look)

    def _look(self) -> None:
        self._timer, self._timer_at = None, math.inf
        now = monotonic()
        due = [item for item, at in self._deadlines.items() if at <= now]
        took_s = monotonic() - now
        self._not_before = now + max(_PAUSE_S, _SHARE * took_s)
        for item in due:
            if self._deadlines.get(item, math.inf) <= now:  # else another one has changed it
                del self._deadlines[item]
                self._due(item)
        following = min(self._deadlines.values(), default=math.inf)
        if following < self._timer_at:
            self._arm(following)
