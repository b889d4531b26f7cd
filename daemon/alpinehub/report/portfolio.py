"""The summary of one day of all hotels, for the agency that manages them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

from alpinehub.models import is_time_zone
from alpinehub.monitoring import read_clients
from alpinehub.report.chart import chart_context
from alpinehub.report.counting import read_figures, read_hotels
from alpinehub.report.day import REPORT_TIME
from alpinehub.report.figures import DayCount, Figures
from alpinehub.report.texts import Words, age_in, moment_in, words_in
from alpinehub.report.writing import Report, plain, templates
from cordata import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class PortfolioHotel:
    """The row of a hotel. Times are microseconds since the epoch."""

    code: str
    name: str
    #: The local day that is counted: the last one that was over when the summary was due.
    day: date
    received: int
    changes: int
    cancellations: int
    duplicates: int
    repeated: int
    errors: int
    #: Now: waiting requests, arrival of the oldest of them, last contact of the software.
    waiting: int
    undeliverable: int
    review: int
    since_at: int | None
    last_contact_at: int | None
    #: Its software no longer polls, or does not acknowledge.
    stale: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Portfolio:
    """The day of all hotels, those with problems first."""

    day: date
    #: Time zone and language of the agency.
    time_zone: str
    language: str
    hotels: tuple[PortfolioHotel, ...]
    #: The totals of all hotels.
    days: tuple[DayCount, ...]
    made_at: int

    @property
    def received(self) -> int:
        """New guest requests and reservations of all hotels."""
        return sum(hotel.received for hotel in self.hotels)


async def read_portfolio(
    store: Store, day: date, *, time_zone: str, language: str, stale_after_h: int
) -> Portfolio:
    """Count one local day of each hotel, in a transaction for each, as there may be hundreds.

    For a hotel so far west that its day is not over when the summary is due, the day before is
    counted, so that each of its days is in exactly one summary.
    """
    watched = await store.read(partial(read_clients, default_h=stale_after_h))
    stale = {one.hotel.code for one in watched if one.staleness is not None}
    lines, totals, made_at = [], dict[date, int](), store.now_us()
    for hotel in await store.read(read_hotels):
        if not is_time_zone(hotel.time_zone):  # `due_reports` alerts about it
            continue
        own = own_day(day, hotel.time_zone, time_zone)
        figures = await store.read(partial(read_figures, hotel=hotel, day=own))
        lines.append(_line(figures, stale=hotel.code in stale))
        for one in figures.days:
            totals[one.day] = totals.get(one.day, 0) + one.received
    return Portfolio(
        day=day,
        time_zone=time_zone,
        language=language,
        hotels=tuple(sorted(lines, key=_urgency)),
        days=tuple(DayCount(day=day, received=totals[day]) for day in sorted(totals)),
        made_at=made_at,
    )


def own_day(day: date, time_zone: str, portfolio_zone: str) -> date:
    """The local day of a hotel that the summary of `day` counts. The rule is the same all year;
    else a day would be missing or counted twice when one of the two zones changes to summer time.
    """
    zone, portfolio = ZoneInfo(time_zone), ZoneInfo(portfolio_zone)
    first = date(day.year, 1, 1)
    for week in range(53):
        counted = first + timedelta(weeks=week)
        due_at = datetime.combine(counted + timedelta(days=1), REPORT_TIME, portfolio)
        if due_at.astimezone(zone).date() <= counted:
            return day - timedelta(days=1)
    return day


def _line(figures: Figures, *, stale: bool) -> PortfolioHotel:
    since = [one.since_at for one in figures.waiting if one.since_at is not None]
    contacts = [
        at
        for one in figures.waiting
        for at in (one.polled_at, one.acked_at, one.pushed_at)
        if at is not None
    ]
    return PortfolioHotel(
        code=figures.hotel.code,
        name=figures.hotel.name,
        day=figures.day,
        received=figures.received,
        changes=figures.changes,
        cancellations=figures.cancellations,
        duplicates=figures.duplicates,
        repeated=figures.repeated,
        errors=figures.errors,
        waiting=max((one.count for one in figures.waiting), default=0),
        undeliverable=figures.undeliverable,
        review=figures.review,
        since_at=min(since, default=None),
        last_contact_at=max(contacts, default=None),
        stale=stale,
    )


def _urgency(hotel: PortfolioHotel) -> tuple[object, ...]:
    trouble = hotel.undeliverable + hotel.review + hotel.errors
    since_at = hotel.since_at if hotel.since_at is not None else 2**63
    return (not hotel.stale, not trouble, since_at, hotel.code)


def write_portfolio(portfolio: Portfolio) -> Report:
    """The summary in the agency's language and time zone."""
    words = words_in(portfolio.language)
    stale = [hotel.code for hotel in portfolio.hotels if hotel.stale]
    context: dict[str, Any] = {
        "portfolio": portfolio,
        "words": words,
        "day": portfolio.day.strftime(words.date),
        "heads": _heads(words),
        "lines": [_cells(hotel, portfolio, words) for hotel in portfolio.hotels],
        "waiting_title": words.waiting.format(
            at=moment_in(words, portfolio.made_at, portfolio.time_zone)
        ),
        "stale": words.stale.format(hotels=", ".join(stale)) if stale else "",
        **chart_context(portfolio.days, words),
    }
    subject = f"{words.portfolio_title}: {words.title} {context['day']}"
    return Report(
        subject=subject,
        text=templates().get_template("portfolio.txt.j2").render(context),
        html=templates().get_template("portfolio.html.j2").render(context),
    )


def _heads(words: Words) -> tuple[str, ...]:
    return (
        *(words.hotel, words.received, words.open, words.oldest, words.last_contact),
        *(words.to_review, words.undeliverable_short, words.errors_short),
    )


def _cells(hotel: PortfolioHotel, portfolio: Portfolio, words: Words) -> tuple[str, ...]:
    since, contact = hotel.since_at, hotel.last_contact_at
    other_day = "" if hotel.day == portfolio.day else f" ({hotel.day.strftime(words.date)})"
    return (
        f"{hotel.code} {plain(hotel.name)}{other_day}",
        *(str(hotel.received), str(hotel.waiting)),
        "" if since is None else age_in(words, portfolio.made_at - since),
        words.never if contact is None else moment_in(words, contact, portfolio.time_zone),
        *(str(hotel.review), str(hotel.undeliverable), str(hotel.errors)),
    )
