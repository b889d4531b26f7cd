"""Deadlines in buckets of a tick: adding and removing cost the same however many there are.

A plain heap would keep each of 20,000 calls a second until its deadline of a minute, answered long
ago. Here only distinct ticks are in the heap, and an item leaves its bucket when it is removed.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Hashable
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Wheel(Generic[T]):
    """Items by the time at which they are due, never early and at most one tick late."""

    __slots__ = ("_buckets", "_count", "_ticks", "tick_s")

    def __init__(self, tick_s: float = 0.01) -> None:
        self.tick_s = tick_s
        self._buckets: dict[int, dict[T, None]] = {}
        #: Every bucket's tick; also those of buckets that were emptied, until they are half of it.
        self._ticks: list[int] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, item: T, at: float) -> int:
        """Note the item; gives the tick that `remove` wants. It must not be there already."""
        tick = math.ceil(at / self.tick_s)
        bucket = self._buckets.get(tick)
        if bucket is None:
            bucket = self._buckets[tick] = {}
            heappush(self._ticks, tick)
        bucket[item] = None
        self._count += 1
        return tick

    def move(self, item: T, tick: int, at: float) -> int:
        """Note the item at another time, `tick` is where it is, -1: nowhere; as `add` then."""
        if tick >= 0:
            if tick == math.ceil(at / self.tick_s):
                return tick
            self.remove(tick, item)
        return self.add(item, at)

    def remove(self, tick: int, item: T) -> None:
        """Forget the item. Raises: KeyError when it is not there."""
        bucket = self._buckets[tick]
        del bucket[item]
        self._count -= 1
        if not bucket:
            del self._buckets[tick]
            if len(self._ticks) > 2 * len(self._buckets) + 64:
                self._ticks = list(self._buckets)
                heapify(self._ticks)

    def due(self, now: float) -> Generator[T, None, None]:
        """Take out all whose time has come, the earliest tick first; each only when it is its turn.

        So what is done about one may remove or move another one that is due, too. What is added
        meanwhile, even if due, is for the next time.
        """
        ticks: list[int] = []
        while self._ticks and self._ticks[0] * self.tick_s <= now:
            ticks.append(heappop(self._ticks))
        try:
            for tick in ticks:
                for item in list(self._buckets.get(tick, ())):
                    if item in self._buckets.get(tick, ()):
                        self.remove(tick, item)
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
