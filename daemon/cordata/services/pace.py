"""The engine gives way to requests: passes are spaced under load, and wait while commits queue."""

from __future__ import annotations

import asyncio

from cordata import clock
from cordata.store import Store

#: Between the starts of two passes: none on an idle system (the last one is long ago), and under
#: load what keeps passes few and their batches large.
SPACING_S = 0.02
#: The same while requests commit side by side: with so many units, that many times the space.
LOADED = ((4, 3), (12, 6))
#: Units waiting for a commit above which requests go first.
BUSY_UNITS = 32
#: A pass waits for them this long at most: the engine falls behind, it never stands still.
YIELD_S = 0.1
_STEP_S = 0.01


class Pace:
    """When the next pass of one service may begin."""

    def __init__(self, store: Store, *, spacing_s: float = SPACING_S) -> None:
        self._store = store
        self._spacing_s = spacing_s
        self._last = clock.monotonic() - spacing_s

    async def next(self, *, full: bool) -> None:
        """Until a pass may begin; `full`: the last one filled its batch, so do not space it."""
        if not full:
            await self._until(self._last + self._spacing_s)
            for units, factor in LOADED:
                if self._store.waiting > units:
                    await self._until(self._last + self._spacing_s * factor)
        deadline = clock.monotonic() + YIELD_S
        while self._busy() and clock.monotonic() < deadline:  # noqa: ASYNC110 - nothing signals it
            await asyncio.sleep(_STEP_S)
        self._last = clock.monotonic()

    async def _until(self, moment: float) -> None:
        wait_s = moment - clock.monotonic()
        if wait_s > 0.0:
            await asyncio.sleep(wait_s)

    def _busy(self) -> bool:
        return self._store.waiting > BUSY_UNITS
