from __future__ import annotations

import dataclasses
import json
from datetime import date
from typing import Any

import pytest

from alpinehub.report.figures import Figures, Subject, Waiting
from alpinehub.report.job import message_id, recipients
from alpinehub.report.words import words_in
from alpinehub.report.writing import to_json, write

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
FIGURES = Figures(
    hotel=HOTEL,
    day=date(2026, 1, 2),
    requests=3,
    reservations=2,
    changes=11,
    cancellations=12,
    delivered=13,
    acknowledged=14,
    refused=15,
    waiting=(
        Waiting(user="pms<b>", count=4, held=1, since_at=1_767_360_387_938_000),
        Waiting(user="second", count=0, held=0, since_at=None),
    ),
    made_at=1_767_423_600_000_000,
)


def changed(**fields: Any) -> Figures:
    return dataclasses.replace(FIGURES, **fields)


def in_language(language: str) -> Figures:
    return changed(hotel=dataclasses.replace(HOTEL, language=language))


def test_report_tells_every_figure_in_the_hotels_time() -> None:
    report = write(FIGURES)
    assert report.subject == 'Hotel "Zur <Post>" & Söhne: Gästeanfragen 02.01.2026'
    assert report.text == (
        'Hotel "Zur <Post>" & Söhne\n'
        "Gästeanfragen 02.01.2026\n\n"
        "Eingegangen: 5\n  Anfragen: 3\n  Buchungen: 2\nÄnderungen: 11\nStornierungen: 12\n"
        "An die Hotelsoftware übertragen: 13\nVon ihr bestätigt: 14\nVon ihr abgelehnt: 15\n\n"
        "Offen (Stand 03.01.2026, 08:00)\n"
        "  pms<b>: 4, älteste seit 02.01.2026, 14:26, "
        "davon 1 in ihrer AlpineBits-Version nicht darstellbar\n"
        "  second: nichts\n\n"
        "-- \nTäglicher Bericht von alpinehub (POST)\n"
    )


def test_html_is_escaped() -> None:
    html = write(FIGURES).html
    assert "Hotel &#34;Zur &lt;Post&gt;&#34; &amp; Söhne" in html
    assert "<b>pms&lt;b&gt;</b>" in html
    assert html.count("<Post>") == 0


@pytest.mark.parametrize(
    ("language", "word", "day"),
    [
        ("de", "Eingegangen", "02.01.2026"),
        ("it", "Ricevute", "02/01/2026"),
        ("en", "Received", "2026-01-02"),
        ("fr", "Received", "2026-01-02"),
    ],
)
def test_report_speaks_the_hotels_language(language: str, word: str, day: str) -> None:
    report = write(in_language(language))
    for text in (report.text, report.html):
        assert word in text
        assert day in text
    assert f'<html lang="{words_in(language).language}">' in report.html


@pytest.mark.parametrize("language", ["de", "it", "en"])
def test_report_says_so_when_no_software_is_connected(language: str) -> None:
    report = write(dataclasses.replace(in_language(language), waiting=()))
    sentence = words_in(language).no_user
    assert sentence in report.text
    assert sentence in report.html.replace("&#39;", "'")


def test_json_holds_every_figure() -> None:
    told = json.loads(to_json(FIGURES))
    assert told["hotel"]["code"] == "POST"
    assert told["day"] == "2026-01-02"
    assert told["waiting"][0]["count"] == 4
    assert (told["requests"], told["refused"]) == (3, 15)


def test_recipients_are_those_of_the_hotel_and_of_all_each_once() -> None:
    assert recipients(" a@x.it, b@x.it ,,nonsense, <c@x.it>", ("b@x.it", "d@x.it")) == [
        "a@x.it",
        "b@x.it",
        "d@x.it",
    ]
    assert recipients(None, ()) == []


def test_message_id_is_the_hotels_and_the_days() -> None:
    made = message_id(HOTEL, date(2026, 1, 2))
    assert made == "<daily-report.7.123.2026-01-02@alpinehub>"
