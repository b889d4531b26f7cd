"""Counts a hotel's day in the store."""

from __future__ import annotations

from datetime import date, timedelta

from alpinehub.directory import settings_of
from alpinehub.report.day import day_bounds
from alpinehub.report.figures import DayCount, Figures, MissedDay, SourceCount, Subject, Waiting
from cordata import Row, Tx

#: Days of the chart.
DAYS = 30
_DAY_US = 86_400_000_000
#: The same guest and stay within this time are one request, sent twice.
_REPEAT_US = 30 * _DAY_US


async def read_hotels(tx: Tx) -> list[Subject]:
    """All hotels that are not disabled, by code."""
    return [_subject(row) for row in await tx.fetch_all("report_hotels")]


def _subject(row: Row) -> Subject:
    fields = dict(row)
    settings = settings_of(fields.pop("settings"), row["code"])
    return Subject(**{**fields, "language": settings.report_language or row["language"]})


async def read_figures(tx: Tx, hotel: Subject, day: date) -> Figures:
    """Count one day of a hotel."""
    bounds = _bounds(hotel, day)
    sources = _by_source(await tx.fetch_all("report_sources", **bounds))
    [versions] = await tx.fetch_all("report_versions", **bounds)
    [sent] = await tx.fetch_all("report_deliveries", **bounds)
    counted = {row["kind"]: row["count"] for row in await tx.fetch_all("report_hours", **bounds)}
    [repeated] = await tx.fetch_all("report_repeated", **bounds, repeat_us=_REPEAT_US)
    [trouble] = await tx.fetch_all("report_trouble", **bounds)
    return Figures(
        hotel=hotel,
        day=day,
        requests=sum(one.requests for one in sources),
        reservations=sum(one.reservations for one in sources),
        leads=sum(one.leads for one in sources),
        sources=sources,
        **versions,
        **sent,
        duplicates=counted.get("duplicate", 0),
        repeated=repeated["count"],
        tests=counted.get("test", 0),
        spam=counted.get("spam", 0),
        errors=counted.get("error", 0) + trouble["errors"],
        review=trouble["review"],
        waiting=await _waiting(tx, hotel),
        days=await _days(tx, hotel, day),
        made_at=tx.now_us,
    )


async def read_missed_day(tx: Tx, hotel: Subject, day: date) -> MissedDay:
    """Count one day that had no report."""
    bounds = _bounds(hotel, day)
    [versions] = await tx.fetch_all("report_versions", **bounds)
    [sent] = await tx.fetch_all("report_deliveries", **bounds)
    return MissedDay(
        day=day,
        received=await _received(tx, hotel, day),
        **versions,
        **sent,
    )


def _by_source(rows: list[Row]) -> tuple[SourceCount, ...]:
    kinds = {"Requested": "requests", "Reserved": "reservations", "Cancelled": "cancellations"}
    found: dict[str, dict[str, int]] = {}
    for row in rows:
        kind = "leads" if row["is_lead"] else kinds.get(row["res_status"], "requests")
        counts = found.setdefault(row["source"], {})
        counts[kind] = counts.get(kind, 0) + row["count"]
    return tuple(SourceCount(source=name, **found[name]) for name in sorted(found))


async def _waiting(tx: Tx, hotel: Subject) -> tuple[Waiting, ...]:
    late_at = tx.now_us - _DAY_US
    rows = await tx.fetch_all("report_waiting", hotel_id=hotel.id, late_at=late_at)
    return tuple(Waiting(**row) for row in rows)


async def _days(tx: Tx, hotel: Subject, last: date) -> tuple[DayCount, ...]:
    days = [last - timedelta(days=before) for before in reversed(range(DAYS))]
    return tuple([DayCount(day=day, received=await _received(tx, hotel, day)) for day in days])


async def _received(tx: Tx, hotel: Subject, day: date) -> int:
    [row] = await tx.fetch_all("report_received", **_bounds(hotel, day))
    return int(row["count"])


def _bounds(hotel: Subject, day: date) -> dict[str, int]:
    from_at, until_at = day_bounds(day, hotel.time_zone)
    return {"hotel_id": hotel.id, "from_at": from_at, "until_at": until_at}
