"""The summary of all hotels."""

from __future__ import annotations

import dataclasses
import json
from datetime import date

import pytest
from tests.unit.report.golden import HOSTILE, check_golden, check_harmless

from alpinehub.report.figures import DayCount
from alpinehub.report.fleet import Fleet, FleetHotel, write_fleet
from alpinehub.report.writing import plain, to_json

WELL = FleetHotel(
    code="EDELW",
    name="Hotel <Edelweiss>",
    received=12,
    changes=1,
    cancellations=0,
    duplicates=2,
    errors=0,
    waiting=0,
    held=0,
    review=0,
    since_at=None,
    last_contact_at=1_767_423_000_000_000,
    silent=False,
)
SILENT = dataclasses.replace(
    WELL,
    code="HIRSCH",
    name="Gasthof Hirsch",
    received=3,
    errors=4,
    waiting=9,
    held=1,
    review=2,
    since_at=1_767_087_587_938_000,
    last_contact_at=None,
    silent=True,
)
FLEET = Fleet(
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
    report = write_fleet(dataclasses.replace(FLEET, language=language))
    check_golden(f"fleet.{language}.txt", f"{report.subject}\n\n{report.text}")
    check_golden(f"fleet.{language}.html", report.html)


@pytest.mark.parametrize("name", HOSTILE)
def test_names_change_nothing_but_themselves(name: str) -> None:
    hotel = dataclasses.replace(WELL, name=name)
    report = write_fleet(dataclasses.replace(FLEET, hotels=(hotel,)))
    assert report.subject == "Alle Hotels: Gästeanfragen 02.01.2026"
    check_harmless(dataclasses.replace(report, subject=plain(name)), name)


def test_summary_of_no_hotels_is_whole() -> None:
    report = write_fleet(dataclasses.replace(FLEET, hotels=(), days=()))
    assert "Hotels: 0" in report.text
    assert "<svg" not in report.html


def test_json_holds_every_figure() -> None:
    told = json.loads(to_json(FLEET))
    assert [hotel["code"] for hotel in told["hotels"]] == ["HIRSCH", "EDELW"]
    assert told["hotels"][0]["silent"] is True
