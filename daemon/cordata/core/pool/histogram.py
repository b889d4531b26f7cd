"""How long many things took, in fixed buckets: their number does not grow, and they add up."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

#: Upper bounds of the buckets in milliseconds; one more is for what took longer.
BOUNDS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 60_000)


class Histogram:
    """How often something took how long."""

    __slots__ = ("buckets",)

    def __init__(self) -> None:
        self.buckets = [0] * (len(BOUNDS_MS) + 1)

    def add(self, milliseconds: float) -> None:
        """One more."""
        if milliseconds <= 1:  # the first one: most of many
            self.buckets[0] += 1
        else:
            self.buckets[bisect_left(BOUNDS_MS, milliseconds)] += 1

    def add_all(self, counts: Sequence[int]) -> None:
        """Those that another one has counted, by bucket."""
        for at, count in enumerate(counts):
            self.buckets[at] += count

    def take(self) -> list[int]:
        """What was counted since the last time, by bucket, without empty ones at the end."""
        found, self.buckets = self.buckets, [0] * (len(BOUNDS_MS) + 1)
        while found and not found[-1]:
            found.pop()
        return found

    def as_map(self) -> dict[str, int]:
        """By upper bound, the empty ones left out."""
        names = [*(str(bound) for bound in BOUNDS_MS), "more"]
        return {name: n for name, n in zip(names, self.buckets, strict=True) if n}
