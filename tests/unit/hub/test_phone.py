"""Telephone numbers as E.164."""

from __future__ import annotations

import pytest

from alpinehub.customers.phone import e164


@pytest.mark.parametrize(
    ("number", "region", "expected"),
    [
        ("0471123456", "IT", "+390471123456"),  # a landline keeps its 0
        ("+390471123456", "AT", "+390471123456"),
        ("3331234567", "IT", "+393331234567"),
        ("00393331234567", "IT", "+393331234567"),
        ("06641234567", "AT", "+436641234567"),
        ("01701234567", "DE", "+491701234567"),
        ("0791234567", "CH", "+41791234567"),
        ("6505551212", "US", "+16505551212"),
        ("+493012345678", "ZZ", "+493012345678"),  # its own country
        ("0471123456", "ZZ", None),
        ("12", "IT", None),
        ("+99999999999999999999", "IT", None),
        ("", "IT", None),
    ],
)
def test_number_is_told_with_its_country(number: str, region: str, expected: str | None) -> None:
    assert e164(number, region) == expected
