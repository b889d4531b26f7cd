"""Renders figures as a mail: subject, text and HTML, from templates that escape by default."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from alpinehub.report.chart import chart_context
from alpinehub.report.figures import Figures, Waiting
from alpinehub.report.texts import Words, age_in, moment_in, words_in

if TYPE_CHECKING:
    from jinja2 import Environment

#: Control characters, and those that change the direction of the text after them.
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]+")

# Each name is that of a count, and of its label in `Words`.
#: The rows of the day.
_ROWS = (
    *("received", "requests", "reservations", "leads", "changes", "cancellations"),
    *("duplicates", "repeated", "tests", "spam", "delivered", "acknowledged", "rejected"),
    *("errors", "review"),
)
#: Rows that are parts of the first, and rows that are left out if they are 0.
_PARTS, _RARE = ("requests", "reservations", "leads"), ("leads", "tests", "spam")
#: The columns of the days that had no report.
_COLUMNS = ("received", "changes", "cancellations", "delivered", "acknowledged", "rejected")
#: The kinds of requests of one source.
_KINDS = ("requests", "reservations", "leads", "cancellations")


@dataclass(frozen=True, slots=True)
class Report:
    """A rendered report."""

    subject: str
    text: str
    html: str


def write(figures: Figures) -> Report:
    """The report in the hotel's language and time zone."""
    words = words_in(figures.hotel.language)
    made_at = moment_in(words, figures.made_at, figures.hotel.time_zone)
    context: dict[str, Any] = {
        "figures": figures,
        "hotel": figures.hotel,
        "words": words,
        "day": figures.day.strftime(words.date),
        "rows": _rows(figures, words),
        "sources": _sources(figures, words),
        "missed_title": words.missed.format(count=len(figures.missed)),
        "missed": _missed(figures, words),
        "waiting": [
            (account.account, _waiting(account, figures, words)) for account in figures.waiting
        ],
        "waiting_title": words.waiting.format(at=made_at),
        **chart_context(figures.days, words),
    }
    return Report(
        subject=plain(f"{figures.hotel.name}: {words.title} {context['day']}"),
        text=templates().get_template("daily.txt.j2").render(context),
        html=templates().get_template("daily.html.j2").render(context),
    )


def _rows(figures: Figures, words: Words) -> list[tuple[str, int, bool]]:
    """(label, count, whether it is a part of the first row), from receipt to delivery."""
    counts = [(name, getattr(figures, name)) for name in _ROWS]
    return [
        (getattr(words, name), count, name in _PARTS)
        for name, count in counts
        if count or name not in _RARE
    ]


def _missed(figures: Figures, words: Words) -> list[list[tuple[str, str]]]:
    """For each missed day its (column head, cell); columns that are 0 on all days are left out."""
    days = figures.missed
    names = [n for n in _COLUMNS if n == "received" or any(getattr(day, n) for day in days)]
    return [
        [(words.day, day.day.strftime(words.date))]
        + [(getattr(words, name), str(getattr(day, name))) for name in names]
        for day in days
    ]


def _sources(figures: Figures, words: Words) -> list[tuple[str, str]]:
    """(source, its counts)"""
    lines = []
    for one in figures.sources:
        counts = [(getattr(words, name), getattr(one, name)) for name in _KINDS]
        lines.append((one.source, ", ".join(f"{what} {count}" for what, count in counts if count)))
    return lines


def _waiting(account: Waiting, figures: Figures, words: Words) -> str:
    zone = figures.hotel.time_zone
    parts = [str(account.count) if account.count else words.nothing]
    if account.since_at is not None:
        age = age_in(words, figures.made_at - account.since_at)
        parts.append(words.since.format(at=moment_in(words, account.since_at, zone), age=age))
    if account.late:
        parts.append(words.late.format(count=account.late))
    if account.undeliverable:
        parts.append(words.undeliverable.format(count=account.undeliverable))
    last = [(words.polled, account.polled_at), (words.acked, account.acked_at)]
    if account.pushed_at is not None or account.failures:
        last = [(words.pushed, account.pushed_at)]
    for sentence, at in last:
        moment = words.never if at is None else moment_in(words, at, zone)
        parts.append(sentence.format(at=moment))
    if account.failures:
        parts.append(words.failures.format(count=account.failures))
    return "; ".join(parts)


def plain(text: object) -> str:
    """A name without characters that would change the text around it."""
    return _UNPRINTABLE.sub(" ", str(text))


@cache
def templates() -> Environment:
    """The templates of all reports."""
    # Imported here: only the process that renders needs jinja2.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

    found = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=select_autoescape(["html.j2"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    found.filters["plain"] = plain
    found.filters["zip"] = zip
    return found


def to_json(record: Any) -> str:
    """Figures as JSON."""
    return msgspec.json.format(msgspec.json.encode(asdict(record)), indent=2).decode()
