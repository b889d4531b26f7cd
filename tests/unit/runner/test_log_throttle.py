"""Which log lines are due."""

from __future__ import annotations

from cordata.log import LogThrottle


def test_line_is_due_at_once_and_again_only_after_a_while() -> None:
    throttle = LogThrottle(again_s=60.0)
    assert throttle.is_due("the store is away", now=100.0)
    assert not throttle.is_due("the store is away", now=159.0)
    assert throttle.is_due("the disk is full", now=159.0)
    assert not throttle.is_due("the store is away", now=159.5)
    assert throttle.is_due("the store is away", now=160.0)


def test_line_is_due_when_it_was_over_meanwhile() -> None:
    throttle = LogThrottle()
    assert not throttle.has_logged
    assert throttle.is_due("the store is away", now=1.0)
    assert throttle.has_logged
    throttle.reset()
    assert not throttle.has_logged
    assert throttle.is_due("the store is away", now=2.0)


def test_lines_without_end_are_bounded() -> None:
    throttle = LogThrottle()
    assert all(throttle.is_due(f"key {number}", now=1.0) for number in range(1001))
    assert throttle.is_due("key 0", now=2.0)
