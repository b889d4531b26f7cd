"""Limits the memory of one worker for request bodies, for any number of clients, slow ones too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

#: The first bytes of each body are not counted, so that large bodies never make the worker refuse
#: a guest request or a poll.
FREE_BYTES = 64 * 1024


class MemoryBudget:
    """The memory of one worker for bodies longer than FREE_BYTES."""

    def __init__(self, max_bytes: int, max_of_one: int | None = None) -> None:
        """`max_of_one`: the most bytes of one owner."""
        self._left = max_bytes
        self._max_of_one = max_of_one
        self._of_owner: Counter[object] = Counter()

    @contextmanager
    def allocation(self, owner: object = None) -> Iterator[Allocation]:
        """The memory of one body; released at the end of the block."""
        made = Allocation(self, owner)
        try:
            yield made
        finally:
            made.grow_to(0)

    def take(self, owner: object, count: int) -> bool:
        """Take `count` bytes, or release them if negative. Returns False over a limit."""
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
    """The memory of one body."""

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
