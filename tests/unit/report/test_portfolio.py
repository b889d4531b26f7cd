"""The summary of all hotels."""

from __future__ import annotations

import dataclasses
from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from tests.unit.report.golden import HOSTILE, check_golden, check_harmless

from alpinehub.report.day import day_bounds
from alpinehub.report.figures import DayCount
from alpinehub.report.portfolio import Portfolio, PortfolioHotel, own_day, write_portfolio
from alpinehub.report.writing import plain
from cordata import to_us

WELL = PortfolioHotel(
    code="EDELW",
    name="Hotel <Edelweiss>",
    day=date(2026, 1, 2),
    received=12,
    changes=1,
    cancellations=0,
    duplicates=2,
    repeated=1,
    errors=0,
    waiting=0,
    undeliverable=0,
    review=0,
    since_at=None,
    last_contact_at=1_767_423_000_000_000,
    stale=False,
)
SILENT = dataclasses.replace(
    WELL,
    code="HIRSCH",
    name="Gasthof Hirsch",
    received=3,
    errors=4,
    waiting=9,
    undeliverable=1,
    review=2,
    since_at=1_767_087_587_938_000,
    last_contact_at=None,
    stale=True,
)
FLEET = Portfolio(
    day=date(2026, 1, 2),
    time_zone="Europe/Rome",
    language="de",
    hotels=(SILENT, WELL),
    days=(
        DayCount(day=date(2026, 1, 1), received=7),
        DayCount(day=date(2026, 1, 2), received=15),
    ),
    made_at=1_767_423_600_000_000,
)


@pytest.mark.parametrize("language", ["de", "it", "en"])
def test_summary_reads_as_it_should(language: str) -> None:
    report = write_portfolio(dataclasses.replace(FLEET, language=language))
    check_golden(f"portfolio.{language}.txt", f"{report.subject}\n\n{report.text}")
    check_golden(f"portfolio.{language}.html", report.html)


@pytest.mark.parametrize("name", HOSTILE)
def test_names_change_nothing_but_themselves(name: str) -> None:
    hotel = dataclasses.replace(WELL, name=name)
    report = write_portfolio(dataclasses.replace(FLEET, hotels=(hotel,)))
    assert report.subject == "Alle Hotels: Gästeanfragen 02.01.2026"
    check_harmless(dataclasses.replace(report, subject=plain(name)), name)


def test_hotel_whose_day_was_not_over_is_told_with_its_own_day() -> None:
    west = dataclasses.replace(WELL, day=date(2026, 1, 1))
    report = write_portfolio(dataclasses.replace(FLEET, hotels=(SILENT, west)))
    assert "EDELW Hotel <Edelweiss> (01.01.2026)" in report.text
    assert "HIRSCH Gasthof Hirsch (" not in report.text


@pytest.mark.parametrize(
    ("time_zone", "days_before"),
    [
        *(("Europe/Rome", 0), ("Pacific/Auckland", 0), ("Pacific/Kiritimati", 0)),
        *(("America/New_York", 0), ("America/Denver", 0), ("America/Phoenix", 1)),
        *(("America/Los_Angeles", 1), ("Pacific/Honolulu", 1), ("Pacific/Midway", 1)),
    ],
)
def test_each_day_of_a_hotel_is_in_one_summary_and_over_when_it_is_due(
    time_zone: str, days_before: int
) -> None:
    days = [date(2026, 1, 1) + timedelta(days=number) for number in range(365)]
    own = [own_day(day, time_zone, "Europe/Rome") for day in days]
    assert own == [day - timedelta(days=days_before) for day in days]
    for day, counted in zip(days, own, strict=True):
        due_at = datetime.combine(day + timedelta(days=1), time(8), ZoneInfo("Europe/Rome"))
        assert to_us(due_at) >= day_bounds(counted, time_zone)[1]


def test_summary_of_no_hotels_is_whole() -> None:
    report = write_portfolio(dataclasses.replace(FLEET, hotels=(), days=()))
    assert "Hotels: 0" in report.text
    assert "<svg" not in report.html
