"""The chart: a bar and a character for each day."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

from lxml import html
from tests.unit.report.test_writing import changed

from alpinehub.report.chart import Bar, bars, sparkline
from alpinehub.report.figures import DayCount
from alpinehub.report.writing import write


def days(*counts: int) -> list[DayCount]:
    first = date(2026, 1, 1)
    return [
        DayCount(day=first + timedelta(days=number), received=count)
        for number, count in enumerate(counts)
    ]


def test_bar_is_as_high_as_its_day_and_seen_however_high_another_is() -> None:
    assert bars(days(3, 0, 9), date_format="%d.%m.") == [
        Bar(41, "01.01.", "01.01.: 3"),
        Bar(0, "02.01.", "02.01.: 0"),
        Bar(124, "03.01.", "03.01.: 9"),
    ]
    assert [bar.height for bar in bars(days(1, 1000), date_format="")] == [2, 124]
    assert [bar.height for bar in bars(days(0, 0), date_format="")] == [0, 0]
    assert bars([], date_format="") == []


def test_html_shows_a_bar_for_each_day_the_last_in_another_colour() -> None:
    page: Any = html.document_fromstring(write(changed(days=tuple(days(3, 0, 9)))).html)
    [chart] = page.xpath("//table[@role='img']")
    assert chart.get("aria-label") == "Eingegangen in den letzten 3 Tagen: ▃·█"
    assert chart.xpath("tr/td/@title") == ["01.01.: 3", "02.01.: 0", "03.01.: 9"]
    assert chart.xpath(".//td/@height") == ["41", "124"]
    first, last = chart.xpath(".//td/@bgcolor")
    assert first != last
    assert chart.getnext().text == "01.01. – 03.01., max 9"


def test_sparkline_has_a_character_for_each_day() -> None:
    assert sparkline(days(0, 1, 4, 8)) == "·▂▅█"
    assert sparkline(days(0, 0)) == "··"
