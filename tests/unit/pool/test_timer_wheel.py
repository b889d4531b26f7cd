"""Deadlines in buckets."""

from __future__ import annotations

from cordata.pool.timer_wheel import Wheel


def test_items_are_due_at_their_tick_in_order_and_never_early() -> None:
    wheel: Wheel[str] = Wheel(0.01)
    for name, at in (("c", 3.0), ("a", 1.0), ("b", 2.0), ("a", 1.5)):
        wheel.set(name, at)
    assert len(wheel) == 3
    assert list(wheel.due(1.49)) == []
    assert list(wheel.due(2.0)) == ["a", "b"]
    assert wheel.next_at() == 3.0


def test_cleared_item_is_never_due_also_while_others_are_taken() -> None:
    wheel: Wheel[str] = Wheel(0.01)
    for name in ("a", "b", "c"):
        wheel.set(name, 1.0)
    found = []
    for name in wheel.due(1.0):
        found.append(name)
        wheel.clear("b")
        wheel.clear("nobody")
    assert found == ["a", "c"]
    assert wheel.next_at() is None


def test_many_that_come_and_go_leave_nothing_behind() -> None:
    wheel: Wheel[int] = Wheel(0.01)
    for number in range(10_000):
        wheel.set(number, 60.0 + number)
        wheel.clear(number)
    assert (len(wheel), wheel.next_at()) == (0, None)
    assert len(wheel._ticks) < 200
