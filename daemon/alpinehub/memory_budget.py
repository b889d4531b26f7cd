"""The memory that one worker may hold for request bodies, however many clients send, and however
slowly.
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
    def allocation(self, owner: object = None) -> Iterator[Allocation]:
        """The memory of one body; given back at the end of the block."""
        made = Allocation(self, owner)
        try:
            yield made
        finally:
            made.grow_to(0)

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


class Allocation:
    """What one body holds of the budget."""

    __slots__ = ("_budget", "_counted", "_owner")

    def __init__(self, budget: MemoryBudget, owner: object) -> None:
        self._budget = budget
        self._owner = owner
        self._counted = 0

    def grow_to(self, size: int) -> bool:
        """The body has `size` bytes by now. Returns whether the budget allows it."""
        counted = max(0, size - FREE_BYTES)
        if counted == self._counted:
            return True
        if not self._budget.take(self._owner, counted - self._counted):
            return False
        self._counted = counted
        return True
