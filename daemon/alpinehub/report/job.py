"""The job: which reports are due, and one of them from the store into the mail."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfoNotFoundError

from alpinehub.report.day import MAX_DAYS, due_days
from alpinehub.report.figures import Figures, Subject, read_figures, read_hotels
from alpinehub.report.rendering import render
from cordata import Context, PermanentError, Tx, from_us

#: Days of which bounds can be told.
_YEARS = range(1970, 9999)
_ADDRESS = re.compile(r"[^\s@,<>]+@[^\s@,<>]+")


async def due_reports(ctx: Context, now: datetime) -> Iterable[tuple[str, str]]:
    """(hotel code, local day) of every report that is due and not made, oldest day first."""
    first = (now - timedelta(days=MAX_DAYS + 3)).date()  # before the first of any zone

    async def unit(tx: Tx) -> tuple[list[Subject], set[tuple[int, str]]]:
        made = await tx.fetch_all("reports_made", first_day=first.isoformat())
        return await read_hotels(tx), {(row["hotel_id"], row["day"]) for row in made}

    hotels, made = await ctx.store.read(unit)
    due: list[tuple[str, str]] = []
    for hotel in hotels:
        try:
            days = due_days(from_us(hotel.since_at), now, hotel.time_zone)
        except (ZoneInfoNotFoundError, ValueError):  # of one hotel: the others get theirs
            ctx.log.error("hotel %s: time zone %r is not known", hotel.code, hotel.time_zone)
            continue
        due += [
            (day.isoformat(), hotel.code) for day in days if (hotel.id, day.isoformat()) not in made
        ]
    return [(code, day) for day, code in sorted(due)]


async def send_report(ctx: Context, scope: str, period: str) -> None:
    """Write the mail of one hotel (its code) and day (YYYY-MM-DD).

    The mail and the note that it was made commit together, and its Message-ID follows from hotel
    and day: a run that was cut off and comes again, or two at once, end in one mail. Nobody to
    send it to is no failure. Raises: PermanentError for a hotel or day that cannot be.
    """
    figures = await read_report(ctx, scope, period)
    hotel, day = figures.hotel, figures.day
    to = recipients(hotel.report_email, ctx.settings["alpinehub"].report_to)
    report = await render(ctx, figures) if to else None

    async def unit(tx: Tx) -> None:
        if report is not None:
            await tx.send_mail(
                to=to,
                subject=report.subject,
                text=report.text,
                html=report.html,
                message_id=message_id(hotel, day),
            )
        await tx.execute(
            "note_report",
            day=day.isoformat(),
            hotel_id=hotel.id,
            recipients=len(to),
            now_us=tx.now_us,
        )

    await ctx.store.run(unit)
    if not to:
        ctx.log.info("no daily report of %s for hotel %s: it has no recipients", period, scope)


async def read_report(ctx: Context, code: str, day: str) -> Figures:
    """The figures of one hotel and day. Raises: PermanentError when either cannot be."""
    try:
        on = date.fromisoformat(day)
    except ValueError:
        raise PermanentError(f"{day!r} is no day", hint="write it as YYYY-MM-DD") from None
    if on.year not in _YEARS:
        raise PermanentError(f"nothing can be known of {day}")

    async def unit(tx: Tx) -> Figures:
        for hotel in await read_hotels(tx):
            if hotel.code == code:
                return await read_figures(tx, hotel, on)
        raise PermanentError(f"there is no hotel {code!r}", hint="see `alpinehub hotel list`")

    return await ctx.store.read(unit)


def recipients(of_hotel: str | None, of_all: Iterable[str]) -> list[str]:
    """Addresses of a hotel (commas between) and those that get every report, each once."""
    addresses = [*(of_hotel or "").split(","), *of_all]
    return [
        address
        for address in dict.fromkeys(address.strip() for address in addresses)
        if _ADDRESS.fullmatch(address)
    ]


def message_id(hotel: Subject, day: date) -> str:
    """The same for the same report, and no other hub's: its moment of creation tells hotels of
    two hubs apart.
    """
    return f"<daily-report.{hotel.id}.{hotel.created_at:x}.{day.isoformat()}@alpinehub>"
