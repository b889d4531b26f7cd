"""The wheel of deadlines against a plain list."""

from __future__ import annotations

import itertools

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from cordata.core.pool.deadline import Wheel


class WheelAgainstList(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.wheel: Wheel[int] = Wheel()
        self.model: dict[int, tuple[int, float]] = {}
        self.now = 0.0
        self.made = 0

    @rule(after_s=st.floats(0, 5))
    def add(self, after_s: float) -> None:
        self.made += 1
        at = self.now + after_s
        self.model[self.made] = (self.wheel.add(self.made, at), at)

    @rule(which=st.integers(0, 1000))
    def remove(self, which: int) -> None:
        if self.model:
            item = sorted(self.model)[which % len(self.model)]
            self.wheel.remove(self.model.pop(item)[0], item)

    @rule(step_s=st.floats(0, 2))
    def due(self, step_s: float) -> None:
        self.now += step_s
        found = self.wheel.due(self.now)
        times = [self.model.pop(item)[1] for item in found]
        assert all(at <= self.now for at in times)
        assert all(at > self.now - self.wheel.tick_s for _, at in self.model.values())
        ticks = [round(at / self.wheel.tick_s + 0.5) for at in times]
        assert all(b - a >= -1 for a, b in itertools.pairwise(ticks))

    @invariant()
    def agrees(self) -> None:
        assert len(self.wheel) == len(self.model)
        at = self.wheel.next_at()
        assert (at is None) == (not self.model)
        if at is not None:
            first = min(at for _, at in self.model.values())
            assert first <= at <= first + self.wheel.tick_s + 1e-9


WheelAgainstList.TestCase.settings = settings(
    max_examples=25, stateful_step_count=40, deadline=None
)
TestWheel = WheelAgainstList.TestCase


def test_remove_leaves_nothing_behind_when_deadlines_are_far_and_many() -> None:
    wheel: Wheel[int] = Wheel()
    for n in range(50_000):
        wheel.remove(wheel.add(n, 1e6 + n), n)
    assert len(wheel) == 0
    assert len(wheel._ticks) < 100
    assert wheel.next_at() is None


def test_due_gives_no_item_that_was_removed_or_moved_because_of_one_before_it() -> None:
    wheel: Wheel[str] = Wheel()
    ticks = {name: wheel.add(name, 1.0) for name in ("first", "removed", "moved", "last")}
    ticks["earlier"] = wheel.add("earlier", 0.5)
    found = []
    for name in wheel.due(2.0):
        found.append(name)
        if name == "first":
            wheel.remove(ticks["removed"], "removed")
            wheel.move("moved", ticks["moved"], 3.0)
            wheel.add("added", 1.0)
    assert found == ["earlier", "first", "last"]
    assert wheel.next_at() == 1.0
    assert [list(wheel.due(at)) for at in (2.0, 2.0, 3.0)] == [["added"], [], ["moved"]]
    assert (len(wheel), wheel.next_at()) == (0, None)


def test_due_keeps_what_was_not_asked_for() -> None:
    wheel: Wheel[int] = Wheel()
    for n in range(4):
        wheel.add(n, n // 2)
    assert next(wheel.due(9.0)) == 0
    assert (len(wheel), list(wheel.due(9.0))) == (3, [1, 2, 3])
