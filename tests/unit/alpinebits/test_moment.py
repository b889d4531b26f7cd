from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alpinehub.alpinebits.moment import moment_us
from alpinehub.alpinebits.structure import date_time

SECOND = 1_000_000
NEW_YEAR = 1_767_225_600 * SECOND  # 2026-01-01T00:00:00Z


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2026-01-01T00:00:00Z", NEW_YEAR),
        (" 2026-01-01T01:00:00+01:00\n", NEW_YEAR),
        ("2025-12-31T24:00:00Z", NEW_YEAR),
        ("2026-01-01T01:00:00", NEW_YEAR),  # no zone: the hotel's
        ("2026-07-01T02:00:00", 1_782_864_000 * SECOND),  # and its summer time
        ("2026-01-01T00:00:00.0000019Z", NEW_YEAR + 1),
        ("2026-01-01T00:00:00.5Z", NEW_YEAR + 500_000),
        ("1969-12-31T23:59:59Z", 0),
        ("0000-01-01T00:00:00Z", 0),
        ("-2026-01-01T00:00:00Z", 0),
    ],
)
def test_moment_is_told_in_microseconds(value: str, expected: int) -> None:
    assert moment_us(value, "Europe/Rome") == expected


@given(
    year=st.integers(1, 10**9),
    month=st.integers(1, 12),
    day=st.integers(1, 31),
    hour=st.integers(0, 24),
    zone=st.sampled_from(["", "Z", "+14:00", "-13:59"]),
)
def test_moment_exists_for_every_day(year: int, month: int, day: int, hour: int, zone: str) -> None:
    value = f"{year:04d}-{month:02d}-{day:02d}T{hour:02d}:00:00{zone}"
    if date_time(value):
        assert moment_us(value, "Europe/Rome") >= 0
