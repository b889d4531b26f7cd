"""The deadlines of all requests of a client behind one timer of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from time import monotonic
from typing import TYPE_CHECKING

from cordata.core.pool.deadline import Wheel

if TYPE_CHECKING:
    from cordata.pool.client.request import Request


class Alarm:
    """Calls `due` with each request whose time has come, and has forgotten it by then."""

    def __init__(self, due: Callable[[Request], None]) -> None:
        self._due = due
        self._wheel: Wheel[Request] = Wheel()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf

    def set(self, request: Request, at: float) -> None:
        """At this time (monotonic), unless it is cleared before."""
        request.tick = self._wheel.add(request, at)
        if at < self._timer_at:
            self._arm(at)

    def clear(self, request: Request) -> None:
        """The request is over."""
        if request.tick >= 0:
            self._wheel.remove(request.tick, request)
            request.tick = -1

    def close(self) -> None:
        """No request is due any more."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = None, inf

    def _arm(self, at: float) -> None:
        self.close()
        self._timer_at = at
        # The wheel gives nothing before its tick, which may be one later.
        delay_s = max(0.0, at - monotonic()) + self._wheel.tick_s
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._ring)

    def _ring(self) -> None:
        self._timer, self._timer_at = None, inf
        for request in self._wheel.due(monotonic()):
            request.tick = -1
            self._due(request)
        following = self._wheel.next_at()
        if following is not None and following < self._timer_at:
            self._arm(following)
