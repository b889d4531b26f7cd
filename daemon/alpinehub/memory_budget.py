"""MemoryBudget on their way in: a worker's memory is bounded by what it may hold of them, not by
how many clients there are, and how slowly they send.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

#: Of each body, not counted: no guest request and no poll is refused because others send much.
FREE_BYTES = 64 * 1024


class MemoryBudget:
    """What one worker holds of bodies that are longer than FREE_BYTES."""

    def __init__(self, max_bytes: int, max_of_one: int | None = None) -> None:
        """`max_of_one`: what one owner may hold at most."""
        self._left = max_bytes
        self._max_of_one = max_of_one
        self._of_owner: Counter[object] = Counter()

    @contextmanager
    def room(self, owner: object = None) -> Iterator[Room]:
        """For one body; given back at the end of the block."""
        made = Room(self, owner)
        try:
            yield made
        finally:
            made.need(0)

    def take(self, owner: object, count: int) -> bool:
        """Take so many bytes, or give back where it is negative. Returns whether it could."""
        held = self._of_owner[owner] + count
        if count > 0 and (
            count > self._left or (self._max_of_one is not None and held > self._max_of_one)
        ):
            return False
        self._left -= count
        self._of_owner[owner] = held
        if not held:
            del self._of_owner[owner]
        return True


class Room:
    """Of one body."""

    __slots__ = ("_bodies", "_counted", "_owner")

    def __init__(self, bodies: MemoryBudget, owner: object) -> None:
        self._bodies = bodies
        self._owner = owner
        self._counted = 0

    def need(self, size: int) -> bool:
        """The body has `size` bytes by now. Returns whether there is room for them."""
        counted = max(0, size - FREE_BYTES)
        if counted == self._counted:
            return True
        if not self._bodies.take(self._owner, counted - self._counted):
            return False
        self._counted = counted
        return True
