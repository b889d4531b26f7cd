"""The figures of one day of one hotel. Times are microseconds since the epoch."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The hotel of a report."""

    id: int
    code: str
    name: str
    time_zone: str
    #: Language of the report, ISO 639-1.
    language: str
    #: Addresses separated by commas, or None.
    report_email: str | None
    created_at: int
    #: When the hotel was added or enabled again: reports are due from that day on.
    since_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """The requests that wait for one account of the hotel, as of now."""

    account: str
    count: int
    #: Of them, those that its AlpineBits version cannot carry.
    undeliverable: int
    #: When the oldest arrived; None: none waits.
    since_at: int | None
    #: Of them, those that arrived more than a day ago.
    late: int = 0
    #: When its software last polled, and last acknowledged; None: never.
    polled_at: int | None = None
    acked_at: int | None = None
    #: With a push target: time of the last push, and number of failures since.
    pushed_at: int | None = None
    failures: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCount:
    """The new guest requests of one source, by kind."""

    source: str
    requests: int = 0
    reservations: int = 0
    #: Requests without dates.
    leads: int = 0
    #: Cancellations of unknown requests.
    cancellations: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DayCount:
    """A bar of the chart."""

    day: date
    #: New guest requests and reservations.
    received: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MissedDay:
    """The row of a day for which no report was made in time."""

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
    #: New ones, by kind.
    requests: int
    reservations: int
    #: New versions of known ones; a cancellation counts even if its request is not known.
    changes: int
    cancellations: int
    #: Versions sent for the first time, acknowledged, and rejected, on that day.
    delivered: int
    acknowledged: int
    rejected: int
    #: For each account of the hotel; as of `made_at`, not of the day.
    waiting: tuple[Waiting, ...]
    made_at: int
    leads: int = 0
    #: Sorted by name.
    sources: tuple[SourceCount, ...] = ()
    #: Submissions sent again without a change.
    duplicates: int = 0
    #: New requests of the same guest for the same stay as an earlier one.
    repeated: int = 0
    tests: int = 0
    spam: int = 0
    #: Invalid submissions of sources, and invalid messages of hotel software.
    errors: int = 0
    #: Submissions in review; as of `made_at`, not of the day.
    review: int = 0
    #: This day and those before it, the oldest first.
    days: tuple[DayCount, ...] = ()
    #: Days before this one that had no report, the oldest first.
    missed: tuple[MissedDay, ...] = ()

    @property
    def received(self) -> int:
        """New guest requests and reservations."""
        return self.requests + self.reservations + self.leads

    @property
    def undeliverable(self) -> int:
        """Number of waiting requests that are undeliverable."""
        return sum(account.undeliverable for account in self.waiting)
