from __future__ import annotations

from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from alpinehub.alpinebits.grammar import check
from alpinehub.alpinebits.moment import moment_us
from alpinehub.alpinebits.protocol import PROTOCOLS

SECOND = 1_000_000
ROME = ZoneInfo("Europe/Rome")
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
    assert moment_us(value, ROME) == expected


READ = etree.fromstring(
    '<OTA_ReadRQ xmlns="http://www.opentravel.org/OTA/2003/05" Version="1"><ReadRequests>'
    '<HotelReadRequest HotelCode="1"><SelectionCriteria Start=""/></HotelReadRequest>'
    "</ReadRequests></OTA_ReadRQ>"
)


def is_taken(value: str) -> bool:
    """Whether a request with this moment is taken."""
    READ[0][0][0].set("Start", value)
    return check(READ, PROTOCOLS["2024-10"]) is None


@given(
    year=st.integers(0, 10**9) | st.sampled_from([0, 1, 9999, 10000]),
    month=st.integers(0, 13),
    day=st.integers(0, 32),
    time=st.sampled_from(["24:00:00", "24:00:00.0", "23:59:59.999", "23:59:60", "00:00:00"]),
    zone=st.sampled_from(["", "Z", "+14:00", "-13:59", "-14:00", "+14:01", "z"]),
    around=st.sampled_from(["{}", " {}\n", "-{}", "+{}"]),
)
def test_moment_exists_for_every_value_that_a_request_may_have(
    year: int, month: int, day: int, time: str, zone: str, around: str
) -> None:
    value = around.format(f"{year:04d}-{month:02d}-{day:02d}T{time}{zone}")
    if is_taken(value):
        assert moment_us(value, ROME) >= 0


@pytest.mark.parametrize("value", ["2024-02-29T00:00:00Z", " 2026-01-01T24:00:00 "])
def test_request_may_have_such_a_moment(value: str) -> None:
    assert is_taken(value)


@pytest.mark.parametrize(
    "value", ["2023-02-29T00:00:00Z", "2026-01-01", "2026-01-01T24:00:01", "yesterday", ""]
)
def test_request_may_not_have_such_a_moment(value: str) -> None:
    assert not is_taken(value)
