"""The daily report as people read it."""

from __future__ import annotations

import dataclasses
from datetime import date, timedelta
from typing import Any

import pytest
from tests.unit.report.golden import HOSTILE, check_golden, check_harmless

from alpinehub.report.figures import DayCount, Figures, SourceCount, Subject, Waiting
from alpinehub.report.job import message_id
from alpinehub.report.texts import words_in
from alpinehub.report.writing import write

HOTEL = Subject(
    id=7,
    code="POST",
    name='Hotel "Zur <Post>" & Söhne',
    time_zone="Europe/Rome",
    language="de",
    report_email=None,
    created_at=0x123,
    since_at=0x123,
)
DAYS = tuple(
    DayCount(day=date(2025, 12, 4) + timedelta(days=number), received=(number * 7) % 11)
    for number in range(30)
)
FIGURES = Figures(
    hotel=HOTEL,
    day=date(2026, 1, 2),
    requests=3,
    reservations=2,
    changes=11,
    cancellations=12,
    delivered=13,
    acknowledged=14,
    rejected=15,
    waiting=(
        Waiting(
            account="pms<b>",
            count=4,
            undeliverable=1,
            since_at=1_767_187_587_938_000,
            late=3,
            polled_at=1_767_423_000_000_000,
        ),
        Waiting(
            account="second",
            count=0,
            undeliverable=0,
            since_at=None,
            polled_at=1_767_423_500_000_000,
            acked_at=1_767_360_387_938_000,
        ),
    ),
    made_at=1_767_423_600_000_000,
    sources=(
        SourceCount(source="<Website>", requests=2, reservations=2, leads=4),
        SourceCount(source="shop", requests=1, cancellations=1),
    ),
    leads=4,
    duplicates=5,
    repeated=8,
    errors=6,
    review=7,
    days=DAYS,
)


def changed(**fields: Any) -> Figures:
    return dataclasses.replace(FIGURES, **fields)


def in_language(language: str) -> Figures:
    return changed(hotel=dataclasses.replace(HOTEL, language=language))


@pytest.mark.parametrize("language", ["de", "it", "en"])
def test_report_reads_as_it_should(language: str) -> None:
    report = write(in_language(language))
    check_golden(f"daily.{language}.txt", f"{report.subject}\n\n{report.text}")
    check_golden(f"daily.{language}.html", report.html)


@pytest.mark.parametrize("name", HOSTILE)
def test_names_change_nothing_but_themselves(name: str) -> None:
    hotel = dataclasses.replace(HOTEL, name=name)
    users = (dataclasses.replace(FIGURES.waiting[0], account=name),)
    sources = (dataclasses.replace(FIGURES.sources[0], source=name),)
    report = write(changed(hotel=hotel, waiting=users, sources=sources))
    check_harmless(report, name)


def test_report_without_a_chart_is_whole() -> None:
    report = write(changed(days=()))
    assert 'role="img"' not in report.html
    assert "30" not in report.text


def test_report_is_in_english_when_there_is_none_in_the_hotels_language() -> None:
    assert write(in_language("fr")) == write(in_language("en"))


@pytest.mark.parametrize("language", ["de", "it", "en"])
def test_report_says_so_when_no_software_is_connected(language: str) -> None:
    report = write(dataclasses.replace(in_language(language), waiting=()))
    sentence = words_in(language).no_account
    assert sentence in report.text
    assert sentence in report.html.replace("&#39;", "'")


def test_message_id_is_the_hotels_and_the_days() -> None:
    made = message_id(HOTEL, date(2026, 1, 2))
    assert made == "<daily-report.7.123.2026-01-02@alpinehub>"
