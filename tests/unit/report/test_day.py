from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from alpinehub.report.day import MAX_DAYS, day_bounds, due_days

HOUR_US = 3_600_000_000


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


@pytest.mark.parametrize(
    ("day", "time_zone", "start", "hours"),
    [
        ("2026-01-02", "Europe/Rome", "2026-01-01T23:00:00Z", 24),
        ("2026-03-29", "Europe/Rome", "2026-03-28T23:00:00Z", 23),
        ("2026-10-25", "Europe/Rome", "2026-10-24T22:00:00Z", 25),
        ("2026-01-02", "Asia/Kathmandu", "2026-01-01T18:15:00Z", 24),
        ("2026-01-02", "UTC", "2026-01-02T00:00:00Z", 24),
        # Midnight itself is skipped: the day starts at one o'clock, an hour shorter.
        ("2022-03-27", "Asia/Beirut", "2022-03-26T22:00:00Z", 23),
        ("2018-11-04", "America/Sao_Paulo", "2018-11-04T03:00:00Z", 23),
        # A day that never was.
        ("2011-12-30", "Pacific/Apia", "2011-12-30T10:00:00Z", 0),
    ],
)
def test_day_is_the_hotels_own(day: str, time_zone: str, start: str, hours: int) -> None:
    from_us, until_us = day_bounds(date.fromisoformat(day), time_zone)
    assert datetime.fromtimestamp(from_us / 1e6, UTC) == at(start)
    assert until_us - from_us == hours * HOUR_US


def test_days_follow_each_other_without_gap_or_overlap() -> None:
    for time_zone in ("Europe/Rome", "Asia/Beirut", "America/Havana", "Australia/Lord_Howe"):
        day = date(2022, 1, 1)
        _, until = day_bounds(day, time_zone)
        for _ in range(800):
            day += timedelta(days=1)
            start, end = day_bounds(day, time_zone)
            assert start == until
            assert end > start
            until = end


CREATED_AT = at("2026-01-02T12:00:00+01:00")


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ("2026-01-02T23:00:00+01:00", []),
        ("2026-01-03T07:59:59+01:00", []),
        ("2026-01-03T08:00:00+01:00", ["2026-01-02"]),
        ("2026-01-04T07:59:59+01:00", ["2026-01-02"]),
        ("2026-01-05T09:00:00+01:00", ["2026-01-02", "2026-01-03", "2026-01-04"]),
        ("2025-12-01T09:00:00+01:00", []),
    ],
)
def test_reports_are_due_from_eight_in_the_morning_after(now: str, expected: list[str]) -> None:
    days = due_days(CREATED_AT, at(now), "Europe/Rome")
    assert [day.isoformat() for day in days] == expected


def test_eight_o_clock_is_the_hotels_in_summer_and_winter() -> None:
    for night, now in (
        ("2026-03-28", "2026-03-29T06:00:00Z"),  # the clock went forward in the night
        ("2026-10-24", "2026-10-25T07:00:00Z"),  # and back
        ("2026-07-01", "2026-07-02T06:00:00Z"),
    ):
        just_before = at(now) - timedelta(seconds=1)
        assert due_days(CREATED_AT, at(now), "Europe/Rome")[-1] == date.fromisoformat(night)
        assert due_days(CREATED_AT, just_before, "Europe/Rome")[-1] < date.fromisoformat(night)


def test_no_day_is_skipped_after_months_of_silence() -> None:
    days = due_days(CREATED_AT, at("2026-12-01T09:00:00+01:00"), "Europe/Rome")
    first = CREATED_AT.astimezone(ZoneInfo("Europe/Rome")).date()
    assert days == [first + timedelta(days=n) for n in range((date(2026, 11, 30) - first).days + 1)]
    assert len(days) > 100


def test_days_are_bounded_when_the_clock_is_wrong_by_years() -> None:
    days = due_days(CREATED_AT, at("2040-12-01T09:00:00+01:00"), "Europe/Rome")
    assert (len(days), days[-1]) == (MAX_DAYS, date(2040, 11, 30))
