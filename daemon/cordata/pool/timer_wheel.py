"""Deadlines of many calls behind one timer of the event loop.

A plain heap would keep each of 20,000 calls a second until its deadline of a minute, answered long
ago. Here deadlines lie in buckets of a tick: only distinct ticks are in the heap, and a call leaves
its bucket when it is over. Adding and removing cost the same however many there are.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Generator, Hashable
from heapq import heapify, heappop, heappush
from time import monotonic
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Wheel(Generic[T]):
    """Items by the time at which they are due, never early and at most one tick late."""

    __slots__ = ("_at", "_buckets", "_ticks", "tick_s")

    def __init__(self, tick_s: float = 0.01) -> None:
        self.tick_s = tick_s
        self._buckets: dict[int, dict[T, None]] = {}
        #: The bucket of each item.
        self._at: dict[T, int] = {}
        #: Every bucket's tick; also those of buckets that were emptied, until they are half of it.
        self._ticks: list[int] = []

    def __len__(self) -> int:
        return len(self._at)

    def set(self, item: T, at: float) -> None:
        """Note the item, or move it to another time."""
        tick = math.ceil(at / self.tick_s)
        former = self._at.get(item)
        if former is not None:
            if former == tick:
                return
            self._remove(former, item)
        self._at[item] = tick
        bucket = self._buckets.get(tick)
        if bucket is None:
            bucket = self._buckets[tick] = {}
            heappush(self._ticks, tick)
        bucket[item] = None

    def clear(self, item: T) -> None:
        """Forget the item, if it is there."""
        tick = self._at.pop(item, None)
        if tick is not None:
            self._remove(tick, item)

    def items(self) -> list[T]:
        """All of them, in no order."""
        return list(self._at)

    def due(self, now: float) -> Generator[T, None, None]:
        """Take out all whose time has come, the earliest tick first; each only when it is its turn.

        So what is done about one may clear or move another one that is due, too. What is added
        meanwhile, even if due, is for the next time.
        """
        ticks: list[int] = []
        while self._ticks and self._ticks[0] * self.tick_s <= now:
            ticks.append(heappop(self._ticks))
        try:
            for tick in ticks:
                for item in list(self._buckets.get(tick, ())):
                    if item in self._buckets.get(tick, ()):
                        self.clear(item)
                        yield item
        finally:  # also when not all of them were asked for
            for tick in ticks:
                if tick in self._buckets:
                    heappush(self._ticks, tick)

    def next_at(self) -> float | None:
        """When to look at `due` next; None: nothing is there."""
        while self._ticks and self._ticks[0] not in self._buckets:
            heappop(self._ticks)
        return self._ticks[0] * self.tick_s if self._ticks else None

    def _remove(self, tick: int, item: T) -> None:
        bucket = self._buckets[tick]
        del bucket[item]
        if not bucket:
            del self._buckets[tick]
            if len(self._ticks) > 2 * len(self._buckets) + 64:
                self._ticks = list(self._buckets)
                heapify(self._ticks)


class Alarm(Generic[T]):
    """Calls `due` with each item whose time has come, and has forgotten it by then."""

    def __init__(self, due: Callable[[T], None]) -> None:
        self._due = due
        self._wheel: Wheel[T] = Wheel()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf

    def set(self, item: T, at: float) -> None:
        """At this time (monotonic), unless it is cleared or set anew before."""
        self._wheel.set(item, at)
        if at < self._timer_at:
            self._arm(at)

    def clear(self, item: T) -> None:
        """The item is over."""
        self._wheel.clear(item)

    def items(self) -> list[T]:
        """All of them, in no order."""
        return self._wheel.items()

    def close(self) -> None:
        """No item is due any more."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = None, math.inf

    def _arm(self, at: float) -> None:
        self.close()
        self._timer_at = at
        # The wheel gives nothing before its tick, which may be one later.
        delay_s = max(0.0, at - monotonic()) + self._wheel.tick_s
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._ring)

    def _ring(self) -> None:
        self._timer, self._timer_at = None, math.inf
        for item in self._wheel.due(monotonic()):
            self._due(item)
        following = self._wheel.next_at()
        if following is not None and following < self._timer_at:
            self._arm(following)
