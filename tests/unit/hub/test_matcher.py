"""Many persons are found in a text as each of them is, at the cost of one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alpinehub.customers.traces import PersonMatcher, group_matchers

PIECES = (
    *("anna@example.com", "bea@example.com", "o'hara@example.com", "x@[1.2.3.4]", "nobody"),
    *("anna", "@", "example.com", ".", "..", "-", "_", "%", "+", " ", "\n", ",", ";", ":", "<"),
    *(">", '"', "'", "a", "1", "é", ".it", ".-", "mailto:", "@example.com", "c@d@", "/"),
)
EMAILS = (
    *("anna@example.com", "bea@example.com", "example.com", "anna@example", "a@1", "é@é.it"),
    *("o'hara@example.com", "x@[1.2.3.4]", "c@d@example.com", ".@example.com", "anna@example..it"),
)


def matcher_of(email: str = "", *numbers: str, hotel_id: int = 1) -> PersonMatcher:
    return PersonMatcher(hotel_id, email, frozenset(numbers), "")


@given(st.lists(st.sampled_from(PIECES), max_size=12), st.sets(st.sampled_from(EMAILS)))
def test_group_is_named_where_one_of_it_is(pieces: list[str], emails: set[str]) -> None:
    text, matchers = "".join(pieces).lower(), [matcher_of(), *map(matcher_of, sorted(emails))]
    named = any(one.is_named_in(text) for one in matchers)
    assert group_matchers(matchers)[1].is_named_in(text) == named


@pytest.mark.parametrize(
    ("text", "is_named"),
    [
        ("anna@example.com", True),
        ("to <anna@example.com>, now", True),
        ("anna@example.com.", True),
        ("x@anna@example.com", True),
        ("hanna@example.com", False),
        ("anna@example.com.au", False),
        ("anna@example.company", False),
        ("anna", False),
    ],
)
def test_address_is_named_as_a_whole(text: str, is_named: bool) -> None:
    [group] = group_matchers(
        [matcher_of("anna@example.com"), matcher_of("bea@example.com")]
    ).values()
    assert group.is_named_in(text) is is_named


def test_number_counts_in_a_text_without_any_address() -> None:
    [group] = group_matchers(
        [matcher_of("", "390471998877"), matcher_of("", "3331234567")]
    ).values()
    assert group.is_numbered_in("call +39 0471 / 99 88 77")
    assert not group.is_numbered_in("+39 0471 99 88 77 of x@example.com")
    assert not group.is_numbered_in("call 0471 99 88 78")


def test_persons_are_looked_for_in_their_own_hotel() -> None:
    groups = group_matchers(
        [matcher_of("anna@example.com"), matcher_of("bea@example.com", hotel_id=2)]
    )
    assert groups[1].is_named_in("anna@example.com")
    assert not groups[2].is_named_in("anna@example.com")
