"""The state page tells truly whether a call has begun, wherever its writer was killed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cordata.core.pool import page


def test_read_says_nothing_in_hand_when_the_page_is_new() -> None:
    assert page.read(bytearray(page.SIZE)) == page.Hand(0, 0, 0.0, 0.0, False)


def test_read_tells_the_call_in_hand_and_the_last_one() -> None:
    shared = memoryview(bytearray(page.SIZE))
    page.begin(shared, 77, 10.5, 70.5)
    assert page.read(shared) == page.Hand(77, 0, 10.5, 70.5, True)
    page.end(shared)
    assert page.read(shared) == page.Hand(77, 1, 10.5, 70.5, False)
    page.begin(shared, 78, 11.0, 0.0)
    assert page.read(shared) == page.Hand(78, 1, 11.0, 0.0, True)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 4))
def test_read_never_says_begun_when_the_writer_died_before_it_said_so(stores: int) -> None:
    before = bytearray(page.SIZE)
    page.begin(before, 1, 1.0, 2.0)
    page.end(before)
    after = bytearray(before)
    page.begin(after, 2, 3.0, 4.0)
    torn = bytearray(before)
    # The order of `begin`: serial, started, deadline, then seq.
    for at in (16, 24, 32, 0)[:stores]:
        torn[at : at + 8] = after[at : at + 8]
    hand = page.read(torn)
    assert hand.busy == (stores == 4)
    if hand.busy:
        assert hand == page.read(after)


def test_begin_refuses_what_was_taken_back_and_nothing_else() -> None:
    shared = memoryview(bytearray(page.SIZE))
    assert page.begin(shared, 77, 1.0, 2.0, 1)
    page.mark(shared, 3)
    assert page.read(shared).order == 1  # what the worker tells: two and three will not begin
    page.end(shared)
    before = page.read(shared)
    assert not page.begin(shared, 78, 1.0, 2.0, 2)
    assert not page.begin(shared, 79, 1.0, 2.0, 3)
    assert page.read(shared) == before
    assert page.begin(shared, 80, 1.0, 2.0, 4)
    page.end(shared)
    page.renew(shared)
    assert page.begin(shared, 81, 1.0, 2.0, 1)


def test_begin_is_taken_back_when_the_mark_comes_between_its_two_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shared = memoryview(bytearray(page.SIZE))
    marked = page.marked
    looks: list[int] = []

    def look(shared_: memoryview) -> int:
        found = marked(shared_)
        looks.append(found)
        page.mark(shared_, 1)
        return found

    monkeypatch.setattr(page, "marked", look)
    assert not page.begin(shared, 77, 1.0, 2.0, 1)
    # The worker may have seen it begun, so the child has to say that it did not run.
    assert looks == [0, 1]
    assert (page.read(shared).order, page.read(shared).busy) == (1, False)
