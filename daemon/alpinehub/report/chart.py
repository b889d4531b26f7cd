"""Thirty days as a chart: bars for HTML, a character for each day for text.

The bars are the cells of a table, which every mail client shows (templates/chart.html.j2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from alpinehub.report.figures import DayCount
from alpinehub.report.texts import Words

#: Pixels of the highest bar.
HEIGHT = 124
_BLOCKS = "▁▂▃▄▅▆▇█"


class Bar(NamedTuple):
    """A day."""

    #: In pixels; above 0 it is at least 2.
    height: int
    #: The day, and the day with its count.
    day: str
    title: str


def chart_context(days: Sequence[DayCount], words: Words) -> dict[str, Any]:
    """What the templates need of the chart."""
    return {
        "last_days": words.last_days.format(count=len(days)),
        "sparkline": sparkline(days),
        "bars": bars(days, date_format=words.short_date),
        "highest": highest_of(days),
    }


def bars(days: Sequence[DayCount], *, date_format: str) -> list[Bar]:
    """A bar for each day."""
    highest = max(highest_of(days), 1)
    found = []
    for one in days:
        height = max(round(HEIGHT * one.received / highest), 2) if one.received else 0
        day = one.day.strftime(date_format)
        found.append(Bar(height, day, f"{day}: {one.received}"))
    return found


def sparkline(days: Sequence[DayCount]) -> str:
    """A character for each day; a dot for a day with 0."""
    highest = highest_of(days)
    steps = len(_BLOCKS) - 1
    return "".join(
        _BLOCKS[round(steps * day.received / highest)] if day.received else "·" for day in days
    )


def highest_of(days: Sequence[DayCount]) -> int:
    """The count of the day with the most."""
    return max((day.received for day in days), default=0)
