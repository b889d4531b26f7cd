"""What one day of one hotel brought, in numbers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from alpinehub.report.day import day_bounds

if TYPE_CHECKING:  # a child of the pool, which renders figures, needs no store
    from cordata import Row, Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The hotel that is reported on."""

    id: int
    code: str
    name: str
    time_zone: str
    #: ISO 639-1.
    language: str
    #: Addresses with commas between, or None.
    report_email: str | None
    created_at: int
    #: Reports are due from this moment's day on: added, or enabled again.
    since_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """What waits for one user of the hotel at this moment."""

    user: str
    count: int
    #: Of them, what his version of the protocol cannot carry.
    held: int
    #: When the oldest came; None: nothing waits. Microseconds since the epoch.
    since_at: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One hotel's day."""

    hotel: Subject
    day: date
    #: New ones, by what they are.
    requests: int
    reservations: int
    #: New versions of known ones; a cancellation of something never heard of counts too.
    changes: int
    cancellations: int
    #: Versions sent for the first time, taken, and refused, on that day.
    delivered: int
    acknowledged: int
    refused: int
    #: For each user of the hotel; of the moment of `made_at`, not of the day.
    waiting: tuple[Waiting, ...]
    made_at: int

    @property
    def received(self) -> int:
        """New guest requests and reservations."""
        return self.requests + self.reservations


async def read_hotels(tx: Tx) -> list[Subject]:
    """All hotels that are not disabled, by code."""
    return [_subject(row) for row in await tx.fetch_all("report_hotels")]


def _subject(row: Row) -> Subject:
    return Subject(**{name: row[name] for name in row.keys()})


async def read_figures(tx: Tx, hotel: Subject, day: date) -> Figures:
    """Count one day."""
    from_at, until_at = day_bounds(day, hotel.time_zone)
    bounds = {"hotel_id": hotel.id, "from_at": from_at, "until_at": until_at}
    counts = {
        (row["res_status"], bool(row["is_first"])): int(row["count"])
        for row in await tx.fetch_all("report_versions", **bounds)
    }
    sent = await tx.fetch_one("report_deliveries", **bounds)
    users = await tx.fetch_all("report_waiting", hotel_id=hotel.id)
    return Figures(
        hotel=hotel,
        day=day,
        requests=counts.get(("Requested", True), 0),
        reservations=counts.get(("Reserved", True), 0),
        changes=sum(
            count
            for (status, first), count in counts.items()
            if not first and status != "Cancelled"
        ),
        cancellations=sum(count for (status, _), count in counts.items() if status == "Cancelled"),
        delivered=int(sent["delivered"]) if sent else 0,
        acknowledged=int(sent["acknowledged"]) if sent else 0,
        refused=int(sent["refused"]) if sent else 0,
        waiting=tuple(
            Waiting(
                user=row["name"], count=row["waiting"], held=row["held"], since_at=row["since_at"]
            )
            for row in users
        ),
        made_at=tx.now_us,
    )
