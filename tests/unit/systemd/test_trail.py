"""What the log tells of an exception."""

from __future__ import annotations

import asyncio

import pytest

from cordata.errors import CommandFailed
from cordata.log import error_places, trail


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except type(error) as caught:
        return caught


def deep(left: int) -> None:
    if left == 0:
        raise ValueError("eva")
    deep(left - 1)


def test_trail_has_the_innermost_place_first() -> None:
    def inner() -> None:
        raise asyncio.QueueFull("eva")

    def outer() -> None:
        inner()

    with pytest.raises(asyncio.QueueFull) as caught:
        outer()
    first, *places = trail(caught.value).split("\n")
    assert first == "asyncio.queues.QueueFull"
    assert [place.rsplit(".", 1)[-1] for place in places[:2]] == ["inner", "outer"]


def test_trail_is_bounded_when_a_function_calls_itself() -> None:
    with pytest.raises(ValueError, match="eva") as caught:
        deep(500)
    lines = trail(caught.value).split("\n")
    assert len(lines) == 22
    assert "  ... 482 more ..." in lines


def test_trail_is_bounded_when_a_group_has_many_or_causes_go_in_a_circle() -> None:
    group = raised(ExceptionGroup("eva", [ValueError("eva") for _ in range(1000)]))
    lines = trail(group).split("\n")
    assert len(lines) < 20 and lines[-1] == "985 more in the group"
    one, two = raised(KeyError("eva")), raised(ValueError("eva"))
    one.__cause__, two.__cause__ = two, one
    assert trail(one).count("KeyError") == 1


def test_trail_leaves_out_what_was_suppressed() -> None:
    with pytest.raises(ValueError) as caught:
        try:
            raise KeyError("eva")
        except KeyError:
            raise ValueError from None
    assert "KeyError" not in trail(caught.value)


def test_trail_never_calls_the_exception() -> None:
    class Nasty(Exception):
        def __str__(self) -> str:
            raise AssertionError

        __repr__ = __str__

    error = raised(Nasty("eva"))
    error.add_note("eva")
    assert "eva" not in trail(error) and "Nasty" in trail(error)


def test_failure_in_the_pool_is_told_with_its_own_places_and_no_message() -> None:
    trace = (
        "Traceback (most recent call last):\n"
        '  File "/srv/shop/voucher.py", line 7, in render\n    draw(payload)\n'
        '  File "/srv/shop/fonts.py", line 3, in draw\n    raise NoFont(name)\n'
        "shop.NoFont: for eva\n"
    )
    error = raised(CommandFailed("for eva", type="shop.NoFont", traceback=trace))
    there = "in the pool shop.NoFont at fonts.py:3 < voucher.py:7"
    assert error_places(error).endswith(f"; {there}") and "test_trail.py:" in error_places(error)
    assert trail(error).splitlines()[-1] == f"  {there}"
    assert "eva" not in error_places(error) + trail(error)
    assert error_places(CommandFailed("eva", type="A")) == "no frame; in the pool A at no frame"
