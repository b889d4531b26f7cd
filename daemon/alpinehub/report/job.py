"""The report jobs: which reports are due, and how one is counted, rendered and mailed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from functools import partial
from zoneinfo import ZoneInfo

from alpinehub.hotels import addresses_of
from alpinehub.models import is_time_zone
from alpinehub.report.counting import read_figures, read_hotels, read_missed_day
from alpinehub.report.day import MAX_DAYS, due_days
from alpinehub.report.figures import Figures, MissedDay, Subject
from alpinehub.report.portfolio import Portfolio, read_portfolio, write_portfolio
from alpinehub.report.writing import Report, write
from cordata import Context, PermanentError, Tx, from_us

#: Days whose bounds can be computed.
_YEARS = range(1970, 9999)
#: If more are due for a hotel, only the last is sent, with the other days in a table.
MAX_REPORTS = 2


async def due_reports(ctx: Context, now: datetime) -> Iterable[tuple[str, str]]:
    """(hotel code, local day) of every report that is due and not made, oldest day first; only the
    last one if more than MAX_REPORTS are due for a hotel.
    """
    first = (now - timedelta(days=MAX_DAYS + 3)).date()  # before the first of any zone

    async def unit(tx: Tx) -> tuple[list[Subject], set[tuple[int, str]]]:
        made = await tx.fetch_all("reports_made", first_day=first.isoformat())
        return await read_hotels(tx), {(row["hotel_id"], row["day"]) for row in made}

    hotels, made = await ctx.store.read(unit)
    due: list[tuple[str, str]] = []
    for hotel in hotels:
        if not is_time_zone(hotel.time_zone):  # the other hotels still get their reports
            text = f"hotel {hotel.code}: the time zone {hotel.time_zone} is not known"
            ctx.alert(f"time-zone:{hotel.code}", text, ids=[hotel.code])
            continue
        days = due_days(from_us(hotel.since_at), now, hotel.time_zone)
        left = [day for day in days if (hotel.id, day.isoformat()) not in made]
        left = left if len(left) <= MAX_REPORTS else left[-1:]
        due += [(day.isoformat(), hotel.code) for day in left]
    return [(code, day) for day, code in sorted(due)]


async def send_report(ctx: Context, scope: str, period: str) -> None:
    """Write the mail of one hotel (its code) and day (YYYY-MM-DD).

    If at least MAX_REPORTS days before it have no report, it has a row for each of them. The mail
    and the record that it was made commit together, and its Message-ID is derived from hotel and
    day: a run that is interrupted and repeated, or two at once, make one mail. Without recipients
    no mail is written. Raises: PermanentError for an unknown hotel or an invalid day.
    """
    figures = await read_report(ctx, scope, period)
    figures = replace(figures, missed=await _read_missed(ctx, figures.hotel, figures.day))
    hotel, day = figures.hotel, figures.day
    to = addresses_of(hotel.report_email, *ctx.settings["alpinehub"].report_to)
    report = write(figures) if to else None

    async def unit(tx: Tx) -> None:
        if report is not None:
            await _send(tx, to, report, message_id(hotel, day))
        for one in (*(missed.day for missed in figures.missed), day):
            await tx.execute("note_report", day=one.isoformat(), hotel_id=hotel.id)

    await ctx.store.run(unit)
    if not to:
        ctx.log.info("no daily report of %s for hotel %s: it has no recipients", period, scope)


async def _read_missed(ctx: Context, hotel: Subject, day: date) -> tuple[MissedDay, ...]:
    """The days before `day` without a report, read one by one; empty if less than MAX_REPORTS."""
    since = from_us(hotel.since_at).astimezone(ZoneInfo(hotel.time_zone)).date()
    first = max(since, day - timedelta(days=MAX_DAYS - 1))
    made = {
        row["day"]
        for row in await ctx.store.read(
            lambda tx: tx.fetch_all("reports_made", first_day=first.isoformat())
        )
        if row["hotel_id"] == hotel.id
    }
    days = [first + timedelta(days=count) for count in range((day - first).days)]
    left = [one for one in days if one.isoformat() not in made]
    if len(left) < MAX_REPORTS:
        return ()
    return tuple(
        [await ctx.store.read(partial(read_missed_day, hotel=hotel, day=one)) for one in left]
    )


async def read_report(ctx: Context, code: str, day: str | None) -> Figures:
    """The figures of one hotel and day; None: today, in the hotel's time zone.

    Raises: PermanentError if either is not valid, or the hotel's time zone is not known.
    """
    on = None if day is None else _day(day)

    async def unit(tx: Tx) -> Figures:
        for hotel in await read_hotels(tx):
            if hotel.code == code:
                _check_zone(f"hotel {code}", hotel.time_zone)
                return await read_figures(tx, hotel, on or _today(ctx, hotel.time_zone))
        raise PermanentError(f"there is no hotel {code!r}", hint="see `alpinehub hotel list`")

    return await ctx.store.read(unit)


def _check_zone(of: str, time_zone: str) -> None:
    """Raises: PermanentError if this host does not know a time zone."""
    if not is_time_zone(time_zone):
        raise PermanentError(
            f"{of}: the time zone {time_zone!r} is not known",
            hint="a valid one is Europe/Rome; if this one is valid, apt install tzdata",
        )


def _portfolio_zone(ctx: Context) -> str:
    zone: str = ctx.settings["alpinehub"].portfolio_zone
    _check_zone("[alpinehub] portfolio_zone", zone)
    return zone


def _today(ctx: Context, time_zone: str) -> date:
    return from_us(ctx.now_us()).astimezone(ZoneInfo(time_zone)).date()


def _day(text: str) -> date:
    """Parse a day. Raises: PermanentError."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise PermanentError(f"{text!r} is not a day", hint="write it as YYYY-MM-DD") from None
    if day.year not in _YEARS:
        raise PermanentError(f"{text} is not a year with reports", hint="use 1970 or later")
    return day


async def _send(tx: Tx, to: Sequence[str], report: Report, message_id: str) -> None:
    await tx.send_mail(
        to=to,
        subject=report.subject,
        text=report.text,
        html=report.html,
        message_id=message_id,
    )


def message_id(hotel: Subject, day: date) -> str:
    """The Message-ID of a report: always the same for it. The hotel's time of creation makes it
    differ from that of another hub.
    """
    return f"<daily-report.{hotel.id}.{hotel.created_at:x}.{day.isoformat()}@alpinehub>"


async def due_portfolio(ctx: Context, now: datetime) -> Iterable[tuple[str, str]]:
    """("", day) of the last day that is over. Missed summaries are not sent later, as the daily
    reports list each missed day. The job runs once per day, however often this is asked.
    """
    hotels = await ctx.store.read(read_hotels)
    if not hotels:
        return []
    since = from_us(min(hotel.created_at for hotel in hotels))
    days = due_days(since, now, _portfolio_zone(ctx))
    return [("", day.isoformat()) for day in days[-1:]]


async def send_portfolio(ctx: Context, scope: str, period: str) -> None:
    """Write the summary mail of one day, if it has recipients. Raises: PermanentError."""
    to = addresses_of(*ctx.settings["alpinehub"].portfolio_to)
    if not to:
        return
    portfolio = await read_all(ctx, period)
    report = write_portfolio(portfolio)

    async def unit(tx: Tx) -> None:
        first = min((one.created_at for one in await read_hotels(tx)), default=0)
        name = f"<portfolio-report.{first:x}.{portfolio.day.isoformat()}@alpinehub>"
        await _send(tx, to, report, name)

    await ctx.store.run(unit)


async def read_all(ctx: Context, day: str | None) -> Portfolio:
    """The figures of all hotels on one day; None: today, in `[alpinehub] portfolio_zone`.

    Raises: PermanentError.
    """
    settings, zone = ctx.settings["alpinehub"], _portfolio_zone(ctx)
    return await read_portfolio(
        ctx.store,
        _today(ctx, zone) if day is None else _day(day),
        time_zone=zone,
        language=settings.portfolio_language,
        stale_after_h=settings.stale_after_h,
    )
