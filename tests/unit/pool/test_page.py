"""The state page tells truly whether a call has begun, wherever its writer was killed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cordata.core.pool import page
from cordata.core.pool.loan import LENT


def test_read_says_nothing_in_hand_when_the_page_is_new() -> None:
    assert page.read(bytearray(page.SIZE)) == page.Hand(0, 0, 0.0, 0.0, False)


def test_read_tells_the_call_in_hand_and_the_last_one() -> None:
    shared = memoryview(bytearray(page.SIZE))
    writer = page.Writer(shared)
    writer.begin(77, 10.5, 70.5)
    assert page.read(shared) == page.Hand(77, 0, 10.5, 70.5, True)
    writer.end()
    assert page.read(shared) == page.Hand(77, 1, 10.5, 70.5, False)
    writer.begin(78, 11.0, 0.0)
    assert page.read(shared) == page.Hand(78, 1, 11.0, 0.0, True)


def test_call_of_a_client_stands_there_with_its_command_and_changes_no_order() -> None:
    shared = memoryview(bytearray(page.SIZE))
    writer = page.Writer(shared)
    writer.begin(77, 1.0, 2.0, 5)
    writer.end()
    for number, command in enumerate(("short", "short", "é" * 200, "", "short"), 1):
        writer.begin_lent(LENT + number, 3.0, 4.0, command)
        assert page.read(shared) == page.Hand(LENT + number, number, 3.0, 4.0, True, 5, command)
        writer.end()
    writer.begin(78, 5.0, 6.0, 6)
    assert page.read(shared) == page.Hand(78, 6, 5.0, 6.0, True, 6)


def test_calls_of_which_nobody_was_told_stand_there_until_somebody_is() -> None:
    shared = memoryview(bytearray(page.SIZE))
    writer = page.Writer(shared)

    def untold() -> tuple[int, int]:
        hand = page.read(shared)
        return hand.untold, hand.failed

    for number, failed in enumerate((False, True, False), 1):
        # Of the calls that the manager gives it knows.
        writer.begin(number, 1.0, 2.0, number)
        assert untold() == (number - 1, int(number > 2))
        writer.end()
        writer.begin_lent(LENT + number, 3.0, 4.0, "render")
        assert untold() == (number - 1, int(number > 2))
        writer.end_lent(failed=failed)
    assert untold() == (3, 1)
    assert page.read(shared).command == "render"
    page.mark(shared, 4)
    assert not writer.begin(4, 1.0, 2.0, 4)
    assert untold() == (3, 1)
    writer.told()
    assert untold() == (0, 0)
    writer.begin_lent(LENT + 4, 3.0, 4.0, "render")
    writer.end_lent(failed=True)
    assert untold() == (1, 1)
    writer.renew()
    assert untold() == (0, 0)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 4))
def test_read_never_says_begun_when_the_writer_died_before_it_said_so(stores: int) -> None:
    before = bytearray(page.SIZE)
    writer = page.Writer(memoryview(before))
    writer.begin(1, 1.0, 2.0)
    writer.end()
    after = bytearray(before)
    page.Writer(memoryview(after)).begin(2, 3.0, 4.0)
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
    writer = page.Writer(shared)
    assert writer.begin(77, 1.0, 2.0, 1)
    page.mark(shared, 3)
    assert page.read(shared).order == 1  # what the worker tells: two and three will not begin
    writer.end()
    before = page.read(shared)
    assert not writer.begin_order(2)
    assert not writer.begin(78, 1.0, 2.0, 2)
    assert not writer.begin(79, 1.0, 2.0, 3)
    assert page.read(shared) == before
    assert writer.begin(80, 1.0, 2.0, 4)
    writer.end()
    writer.renew()
    assert writer.begin(81, 1.0, 2.0, 1)


class Watched:
    """The words of a page, of which the other side marks one right after so many looks at that."""

    def __init__(self, shared: memoryview, looks: int) -> None:
        self._shared, self._words = shared, shared.cast("Q")
        self._looks = looks
        self.looks: list[int] = []

    def __getitem__(self, at: Any) -> Any:
        found = self._words[at]
        if at == MARK:
            self.looks.append(found)
            if len(self.looks) == self._looks:
                page.mark(self._shared, 1)
        return found

    def __setitem__(self, at: Any, value: Any) -> None:
        self._words[at] = value


class WatchedMemory:
    """Memory that hands out such words."""

    def __init__(self, shared: memoryview, looks: int) -> None:
        self.words, self._shared = Watched(shared, looks), shared

    def cast(self, format: str) -> Any:
        return self.words if format == "Q" else self._shared.cast("d")


#: The mark, in words.
MARK = 6


def test_begin_that_is_refused_amid_its_looks_is_no_call() -> None:
    shared = memoryview(bytearray(page.SIZE))
    memory: Any = WatchedMemory(shared, looks=1)
    writer = page.Writer(memory)
    assert not writer.begin(77, 1.0, 2.0, 1)
    assert (page.read(shared).order, page.read(shared).busy) == (0, False)
    writer.begin_lent(LENT + 1, 3.0, 4.0, "")
    writer.end_lent(failed=True)
    assert (page.read(shared).untold, page.read(shared).failed) == (1, 1)


@pytest.mark.parametrize("lent", [False, True])
def test_begin_is_taken_back_when_the_mark_comes_between_its_last_two_looks(lent: bool) -> None:
    shared = memoryview(bytearray(page.SIZE))
    memory: Any = WatchedMemory(shared, looks=1 if lent else 2)
    writer = page.Writer(memory)
    assert not (writer.begin_order(1) if lent else writer.begin(77, 1.0, 2.0, 1))
    # The worker may have seen it begun, so the child has to say that it did not run.
    assert memory.words.looks == ([0, 1] if lent else [0, 0, 1])
    hand = page.read(shared)
    assert (hand.order, hand.busy, hand.untold) == (1, False, int(lent))
