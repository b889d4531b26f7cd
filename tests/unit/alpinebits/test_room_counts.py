"""Free rooms night by night: periods say what a plain dictionary of nights says."""

from __future__ import annotations

from datetime import date
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from alpinehub.alpinebits.rules.room_counts import (
    Counts,
    FreeRooms,
    Key,
    Period,
    apply_complete_set,
    apply_delta,
    cut,
    decode,
    encode,
    lay,
)

FIRST = date(2027, 2, 26).toordinal()
KEYS = (Key("DZ"), Key("DZ", "101"), Key("EZ"))

periods = st.builds(
    lambda first, length, *counts: Period(first, first + length, Counts(*counts)),
    st.integers(FIRST, FIRST + 12),
    st.integers(0, 5),
    st.integers(0, 2),
    st.integers(0, 1),
    st.integers(0, 1),
)
spans = st.builds(
    lambda first, length: Period(first, first + length),
    st.integers(FIRST, FIRST + 12),
    st.integers(0, 5),
)
messages = st.builds(
    FreeRooms,
    st.lists(spans, max_size=3).map(tuple),
    st.dictionaries(st.sampled_from(KEYS), st.lists(periods, max_size=6).map(tuple), max_size=3),
)

Nights = dict[tuple[Key | None, int], Counts]


def tell(nights: Nights, message: FreeRooms) -> Nights:
    """What a dictionary says after a message, night by night."""
    for closing in message.closings:
        for night in range(closing.first, closing.last + 1):
            nights[None, night] = Counts()
    for key, told in message.entries.items():
        for one in told:
            for night in range(one.first, one.last + 1):
                nights[key, night] = one.counts
    return nights


def told_once(known: FreeRooms) -> bool:
    """Whether its periods are in order, apart, and longest."""
    return all(
        before.last + 1 < after.first
        or (before.last < after.first and before.counts != after.counts)
        for told in (known.closings, *known.entries.values())
        for before, after in pairwise(told)
    )


@given(complete=messages, deltas=st.lists(messages, max_size=4))
def test_complete_set_and_deltas_say_what_a_dictionary_of_nights_says(
    complete: FreeRooms, deltas: list[FreeRooms]
) -> None:
    known, nights = apply_complete_set(complete), tell({}, complete)
    for delta in deltas:
        known = apply_delta(known, delta)
        tell(nights, delta)
    assert tell({}, known) == nights
    assert told_once(known)


@given(first=messages, second=messages)
def test_complete_set_leaves_nothing_of_what_was_known(first: FreeRooms, second: FreeRooms) -> None:
    assert tell({}, apply_complete_set(second)) == tell({}, second)
    assert apply_delta(apply_complete_set(first), FreeRooms()) == apply_complete_set(first)


@given(message=messages)
def test_laying_again_and_writing_change_nothing(message: FreeRooms) -> None:
    known = apply_complete_set(message)
    assert apply_complete_set(known) == known
    assert decode(encode(known)) == known


@given(message=messages, day=st.integers(FIRST - 1, FIRST + 20))
def test_cutting_keeps_what_is_on_one_side(message: FreeRooms, day: int) -> None:
    known = apply_complete_set(message)
    later, earlier = cut(known, first=day), cut(known, last=day)
    for told in (later.closings, *later.entries.values()):
        assert all(one.last >= day for one in told)
    for told in (earlier.closings, *earlier.entries.values()):
        assert all(one.last <= day for one in told)
    for told, left in (
        (known.closings, earlier.closings),
        *((told, earlier.entries.get(key, ())) for key, told in known.entries.items()),
    ):
        assert nights(left) == {night for night in nights(told) if night[0] <= day}
    assert all(later.entries.values()) and all(earlier.entries.values())
    assert cut(known, first=FIRST - 1).size == known.size == cut(known, last=FIRST + 20).size


def nights(told: tuple[Period, ...]) -> set[tuple[int, Counts]]:
    return {(night, one.counts) for one in told for night in range(one.first, one.last + 1)}


def test_hundred_thousand_overlapping_periods_are_laid_in_a_moment() -> None:
    """A client could keep a worker busy for hours if each were compared with each."""
    many = [Period(at, 200_000 - at, Counts(at % 9)) for at in range(100_000)]
    laid = lay(many)
    assert laid[0] == Period(0, 0, Counts(0)) and len(laid) > 190_000


def test_rooms_are_distinct_or_categories_or_neither() -> None:
    assert FreeRooms().distinct is None
    assert FreeRooms((), {Key("DZ"): ()}).distinct is False
    assert FreeRooms((), {Key("DZ", "101"): ()}).distinct is True
