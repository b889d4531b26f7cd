"""Hashes of customers, against what the platforms publish."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alpinehub.customers.hashing import PLATFORMS, RULES, hashes

FIELDS = tuple(RULES["meta"])
NOBODY: dict[str, str | None] = dict.fromkeys(FIELDS)


def hashed(platform: str, **told: str) -> dict[str, str]:
    """The hashes that are there, as hexadecimal digits."""
    found = hashes({**NOBODY, **told}, platform)
    return {name: value.hex() for name, value in found.items()}


#: (platform, field, as told, the platform's own example)
PUBLISHED = [
    (
        "meta",
        "email",
        " John_Smith@gmail.com ",
        "62a14e44f765419d10fea99367361a727c12365e2520f32218d505ed9aa0f62f",
    ),
    (
        "google",
        "email",
        "John_Smith@gmail.com",
        "62a14e44f765419d10fea99367361a727c12365e2520f32218d505ed9aa0f62f",
    ),
    (
        "meta",
        "phone",
        "+16505551212",
        "e323ec626319ca94ee8bff2e4c87cf613be6ea19919ed1364124e16807ab3176",
    ),
    (
        "meta",
        "first_name",
        "Mary",
        "6915771be1c5aa0c886870b6951b03d7eafc121fea0e80a5ea83beb7c449f4ec",
    ),
    (
        "meta",
        "first_name",
        "Valéry",
        "08e1996b5dd49e62a4b4c010d44e4345592a863bb9f8e3976219bac29417149c",
    ),
    (
        "meta",
        "first_name",
        "Vale\u0301ry",  # an e and an accent of its own
        "08e1996b5dd49e62a4b4c010d44e4345592a863bb9f8e3976219bac29417149c",
    ),
    (
        "meta",
        "last_name",
        "정",
        "8fa8cd9c440be61d0151429310034083132b35975c4bea67fdd74158eb51db14",
    ),
    (
        "meta",
        "gender",
        "female",
        "252f10c83610ebca1a059c0bae8255eba2f95be4d1d7bcfa89d7248a82d9f111",
    ),
    (
        "meta",
        "gender",
        "male",
        "62c66a7a5dd70c3146618063c344e531e6d4b59e379808443ce962b3abd63c5a",
    ),
    (
        "meta",
        "country",
        "US",
        "79adb2a2fce5c6ba215fe5f27f532d4e7edbac4b6a5e09e1ef3a08084a904621",
    ),
    (
        "meta",
        "state",
        "CA",
        "6959097001d10501ac7d54c0bdb8db61420f658f2922cc26e46d536119a31126",
    ),
]


@pytest.mark.parametrize(("platform", "field", "told", "expected"), PUBLISHED)
def test_hash_is_the_one_that_the_platform_publishes(
    platform: str, field: str, told: str, expected: str
) -> None:
    assert hashed(platform, **{field: told}) == {field: expected}


def of(text: str) -> str:
    return sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(
    ("platform", "field", "told", "written"),
    [
        ("meta", "email", "jo.hn+x@gmail.com", "jo.hn+x@gmail.com"),
        ("google", "email", "Jo.Hn+x@GoogleMail.com", "john@googlemail.com"),
        ("google", "email", "jo.hn+x@example.com", "jo.hn+x@example.com"),
        ("google", "email", " john @gmail.com", "john@gmail.com"),
        ("meta", "phone", "+390471123456", "390471123456"),
        ("google", "phone", "+390471123456", "+390471123456"),
        ("meta", "last_name", " O'Néil-Smith ", "onéilsmith"),
        ("google", "last_name", " O'Néil-Smith ", "o'néil-smith"),
        ("meta", "first_name", "Anna Maria", "anna maria"),
        ("meta", "city", "St. Ulrich in Gröden", "stulrichingröden"),
        ("meta", "postal_code", "SW1A 1AA", "sw1a1aa"),
        ("meta", "birth_date", "1997-02-16", "19970216"),
    ],
)
def test_text_is_written_as_the_platform_wants_before_it_is_hashed(
    platform: str, field: str, told: str, written: str
) -> None:
    assert hashed(platform, **{field: told}) == {field: of(written)}


def test_google_gets_no_place_and_no_birth_date() -> None:
    told = dict.fromkeys(FIELDS, "x")
    assert set(hashed("google", **told)) == {"email", "phone", "first_name", "last_name"}


@pytest.mark.parametrize("platform", PLATFORMS)
def test_nothing_is_hashed_when_nothing_is_left(platform: str) -> None:
    assert hashed(platform) == {}
    assert hashed(platform, first_name="  ", email="") == {}
    assert hashed("meta", first_name="-", city="...") == {}


@given(st.text(max_size=40), st.sampled_from(FIELDS), st.sampled_from(PLATFORMS))
def test_case_and_space_around_change_no_hash(text: str, field: str, platform: str) -> None:
    told = text.lower()
    assert hashed(platform, **{field: f" {told}\t"}) == hashed(platform, **{field: told.strip()})
