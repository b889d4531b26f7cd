"""Figures into a mail: subject, text and HTML, from templates that escape by default."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import msgspec

from alpinehub.report.figures import Figures
from alpinehub.report.words import Words, words_in
from cordata import from_us

if TYPE_CHECKING:
    from jinja2 import Environment


@dataclass(frozen=True, slots=True)
class Report:
    """One report, as it is mailed."""

    subject: str
    text: str
    html: str


def render(payload: Any, session: Any) -> Report:
    """The command `render_report`: `write`, in a child of the pool."""
    return write(msgspec.convert(payload, Figures))


def write(figures: Figures) -> Report:
    """The report in the hotel's language, its times in the hotel's zone."""
    words = words_in(figures.hotel.language)
    context = {"figures": figures, "hotel": figures.hotel, "words": words}
    context |= {"day": figures.day.strftime(words.date), "rows": _rows(figures, words)}
    context["waiting"] = _waiting(figures, words)
    context["waiting_title"] = words.waiting.format(at=_local(figures.made_at, figures, words))
    templates = _templates()
    return Report(
        subject=f"{figures.hotel.name}: {words.title} {figures.day.strftime(words.date)}",
        text=templates.get_template("daily.txt.j2").render(context),
        html=templates.get_template("daily.html.j2").render(context),
    )


def _rows(figures: Figures, words: Words) -> list[tuple[str, int, bool]]:
    """(what, how many, whether it is part of the row above it), in the order of a day."""
    return [
        (words.received, figures.received, False),
        (words.requests, figures.requests, True),
        (words.reservations, figures.reservations, True),
        (words.changes, figures.changes, False),
        (words.cancellations, figures.cancellations, False),
        (words.delivered, figures.delivered, False),
        (words.acknowledged, figures.acknowledged, False),
        (words.refused, figures.refused, False),
    ]


def _waiting(figures: Figures, words: Words) -> list[tuple[str, str]]:
    """(user, what waits for him)"""
    told = []
    for waiting in figures.waiting:
        parts = [str(waiting.count) if waiting.count else words.nothing]
        if waiting.since_at is not None:
            parts.append(words.since.format(at=_local(waiting.since_at, figures, words)))
        if waiting.held:
            parts.append(words.held.format(count=waiting.held))
        told.append((waiting.user, ", ".join(parts)))
    return told


def _local(us: int, figures: Figures, words: Words) -> str:
    """A moment in the hotel's own time."""
    zone = ZoneInfo(figures.hotel.time_zone)
    return from_us(us).astimezone(zone).strftime(words.date_time)


@cache
def _templates() -> Environment:
    # Imported here: only the process that renders pays for jinja2: a child, in most cases.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

    return Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=select_autoescape(["html.j2"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def to_json(figures: Figures) -> str:
    """The figures for programs."""
    return msgspec.json.format(msgspec.json.encode(asdict(figures)), indent=2).decode()
