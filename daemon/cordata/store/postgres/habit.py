"""Which kinds of units are better run alone: learned from what they did.

A kind is the code of the unit. One that broke the pattern of a shared transaction (read after it
wrote, locked rows, waited for a lock for long) runs alone for a while; if it does so again soon
after, for twice as long.
"""

from __future__ import annotations

from functools import partial
from typing import Any

#: Runs that a kind is alone for at first, and at most.
_FIRST, _MOST = 16, 1 << 16
#: Above it the code is made anew all the time, and what was learned of it is of no use.
_KINDS = 4096


def kind_of(unit: Any) -> object:
    """What tells apart units that do the same from those that do something else."""
    while (inner := getattr(unit, "__wrapped__", None)) is not None:
        unit = inner
    if isinstance(unit, partial):
        return kind_of(unit.func)
    code = getattr(unit, "__code__", None)
    if code is None:
        code = getattr(getattr(unit, "__func__", None), "__code__", None)
    return type(unit) if code is None else code


class Habits:
    """What was learned of the units of this process."""

    def __init__(self) -> None:
        self._kinds: dict[object, _Habit] = {}

    def alone(self, unit: Any) -> bool:
        """Whether to run it alone; counts as a run."""
        if not self._kinds:
            return False
        habit = self._kinds.get(kind_of(unit))
        if habit is None:
            return False
        if not habit.left:
            habit.shared += 1
            return False
        habit.left -= 1
        return True

    def broke(self, unit: Any) -> None:
        """It broke the pattern of a shared transaction."""
        if len(self._kinds) >= _KINDS:
            self._kinds.clear()
        habit = self._kinds.setdefault(kind_of(unit), _Habit())
        again = habit.shared <= habit.span
        habit.span = min(habit.span * 2, _MOST) if again else _FIRST
        habit.left, habit.shared = habit.span, 0


class _Habit:
    """Of one kind."""

    __slots__ = ("left", "shared", "span")

    def __init__(self) -> None:
        #: Runs that it was left alone for at last.
        self.span = _FIRST // 2
        #: Of those, to come.
        self.left = 0
        #: Shared runs since then.
        self.shared = 0
