"""The figures of one day of one hotel. Moments are microseconds since the epoch."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The hotel that is reported on."""

    id: int
    code: str
    name: str
    time_zone: str
    #: ISO 639-1, of the report.
    language: str
    #: Addresses with commas between, or None.
    report_email: str | None
    created_at: int
    #: Reports are due from this moment's day on: added, or enabled again.
    since_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """One account of the hotel, and what waits for it at this moment."""

    account: str
    count: int
    #: Of them, what its version of the protocol cannot carry.
    undeliverable: int
    #: When the oldest came; None: nothing waits.
    since_at: int | None
    #: How many of them came more than a day ago.
    late: int = 0
    #: When its software last polled, and last acknowledged; None: never.
    polled_at: int | None = None
    acked_at: int | None = None
    #: With a push target: when the last push was, and how often it failed since.
    pushed_at: int | None = None
    failures: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCount:
    """The submissions of one source, new ones by what they are."""

    source: str
    requests: int = 0
    reservations: int = 0
    #: Requests without dates.
    leads: int = 0
    #: Of something never heard of.
    cancellations: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DayCount:
    """A bar of the chart."""

    day: date
    #: New guest requests and reservations.
    received: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MissedDay:
    """The row of a day of which there was no report in time."""

    day: date
    received: int
    changes: int
    cancellations: int
    delivered: int
    acknowledged: int
    rejected: int


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
    #: Versions sent for the first time, taken, and rejected, on that day.
    delivered: int
    acknowledged: int
    rejected: int
    #: For each account of the hotel; of the moment of `made_at`, not of the day.
    waiting: tuple[Waiting, ...]
    made_at: int
    leads: int = 0
    #: By name.
    sources: tuple[SourceCount, ...] = ()
    #: Sent again as they were: they made nothing new.
    duplicates: int = 0
    #: New ones by the same guest for the same stay as an earlier one.
    repeated: int = 0
    tests: int = 0
    spam: int = 0
    #: What was rejected as wrong: of sources, and of hotel software.
    errors: int = 0
    #: Submissions in review; of the moment, not of the day.
    review: int = 0
    #: This day and those before it, the oldest first.
    days: tuple[DayCount, ...] = ()
    #: Days before this one without a report until now, the oldest first.
    missed: tuple[MissedDay, ...] = ()

    @property
    def received(self) -> int:
        """New guest requests and reservations."""
        return self.requests + self.reservations + self.leads

    @property
    def undeliverable(self) -> int:
        """What waits and is undeliverable."""
        return sum(account.undeliverable for account in self.waiting)
