"""Many persons are found in a text as each of them is, at the cost of one."""

from __future__ import annotations

import tracemalloc
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alpinehub.customers.matcher import PersonMatcher, group_matchers, readable
from alpinehub.customers.phone import written_forms

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


def test_number_that_was_asked_for_counts_beside_an_address_too() -> None:
    asked = PersonMatcher(1, "", frozenset({"390471998877"}), is_asked=True)
    [group] = group_matchers([asked, matcher_of("", "3331234567")]).values()
    assert group.is_numbered_in("+39 0471 99 88 77 of x@example.com")
    assert not group.is_numbered_in("333 1234567 of x@example.com")


@pytest.mark.parametrize("other", ["x@[1.2.3.4]", "maria @ example.com", "maria@ example"])
def test_number_of_a_customer_does_not_count_beside_a_misspelt_address(other: str) -> None:
    [group] = group_matchers([matcher_of("", "3331234567")]).values()
    assert not group.is_numbered_in(f"333 1234567 of {other}")


@pytest.mark.parametrize(
    ("text", "is_named"),
    [
        ("message=Write+to+anna@example.com", True),
        ("otto+anna@example.com is my address", False),
        ("message=Write+to+anna@example.com&name=A B", True),
        ("a=1\r\nmessage=to+anna@example.com", True),
        ("\r\n--x\r\n\r\notto+anna@example.com\r\n--x--", False),
        ('{"email": "otto+anna@example.com"}', False),
    ],
)
def test_plus_is_a_space_in_a_form_only(text: str, is_named: bool) -> None:
    [group] = group_matchers([matcher_of("anna@example.com")]).values()
    assert group.is_named_in(readable(text)) is is_named


def test_many_groups_of_digits_are_not_kept_in_memory() -> None:
    [group] = group_matchers([matcher_of("", "3331234567")]).values()
    digits = Random(1)
    text = " ".join(str(digits.randrange(10)) for _ in range(50_000))
    tracemalloc.start()
    try:
        assert not group.is_numbered_in(text)
        assert tracemalloc.get_traced_memory()[1] < 8 * 1024 * 1024
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("call 393331234567.", "call …."),
        ("call +393331234567", "call …"),
        ("call 00393331234567", "call …"),
        ("call 3933312345678", "call 3933312345678"),
        ("call 4393331234567", "call 4393331234567"),
    ],
)
def test_number_is_hidden_with_its_prefix(text: str, hidden: str) -> None:
    assert matcher_of("", "393331234567").hide(text) == hidden


MOBILE = written_forms("+39 333 1212123", "IT")
VIENNA = written_forms("0660 1234567", "AT")
LOCAL = written_forms("1234567", "DE")


@pytest.mark.parametrize(
    ("numbers", "text", "is_numbered"),
    [
        *[(MOBILE, text, True) for text in (
            "3331212123", "333 121 2123", "333+121+2123", "333-121-2123", "333.121.2123",
            "333/121/2123", "333_121_2123", "333 - 121 - 2123", "333·121·2123", "333–121–2123",
            "333\u00a01212123", "333\u2009121\u20092123", "333,121,2123", "(333) 1212123",
            "+393331212123", "+39 (333) 121-2123", "0039 333 1212123", "39 333 1212123",
            "+39+333+121+2123", "phone=%2B39+333+1212123&x=2", "tel=333%20121%202123",
            '{"phone": 3331212123}', '{"phone": "333+121+2123"}', '{"phone": "333\\u00a01212123"}',
            '{"broken": "333\\u00a01212123', "333 1212123 (2 adults)", "2 333 1212123",
            "2027-02-01 333 1212123", "5, 7, 333 1212123", "333 1212123, 333 9999999",
            "+49 30 1234567 333 1212123", "call2+333+1212123", "\u0663\u0663\u0663 1212123",
        )],
        *[(MOBILE, text, False) for text in (
            "333 1212124", "1212123", "333 121212", "3331212123 4".replace(" ", ""),
            "4 3331212123".replace(" ", ""), "+49 333 1212123", "0049 333 1212123",
            "333\n1212123", "333 x 1212123", '["333", "1212123"]',
        )],
        *[(VIENNA, text, True) for text in (
            "0660 1234567", "+43 660 1234567", "+43 (0)660 1234567", "0043 660 1234567",
            "660 1234567",
        )],
        *[(VIENNA, text, False) for text in (
            "+39 660 1234567", "tel=%2B39+660+1234567", "0664 1234567", "1234567",
        )],
        *[(LOCAL, text, True) for text in ("1234567", "123 45 67", "call 1234567, please")],
        *[(LOCAL, text, False) for text in ("0664 1234567", "1234567 2", "12345678", "2 1234567")],
    ],
)  # fmt: skip
def test_number_is_found_in_any_writing_and_never_as_a_part_of_another(
    numbers: frozenset[str], text: str, is_numbered: bool
) -> None:
    [group] = group_matchers([PersonMatcher(1, "", numbers)]).values()
    assert group.is_numbered_in(readable(text)) is is_numbered


def test_number_that_is_too_short_for_a_search_is_in_no_writing() -> None:
    assert written_forms("112", "IT") == frozenset()


def test_persons_are_looked_for_in_their_own_hotel() -> None:
    groups = group_matchers(
        [matcher_of("anna@example.com"), matcher_of("bea@example.com", hotel_id=2)]
    )
    assert groups[1].is_named_in("anna@example.com")
    assert not groups[2].is_named_in("anna@example.com")
