"""Which days a daily job still owes. Pure."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from datetime import date, timedelta

_DAY = timedelta(days=1)


def days_owed(known: Iterable[tuple[str, bool]], today: date) -> list[str]:
    """The days to run, oldest first: those begun and never done, and each after the last done one.

    `known` is (period, done) of every run so far; periods that are no days, and days to come, were
    asked for by name and say nothing. A job that never ran owes today only.
    """
    begun: set[date] = set()
    last_done: date | None = None
    for period, done in known:
        with contextlib.suppress(ValueError):
            day = date.fromisoformat(period)
            if day > today:
                continue
            if not done:
                begun.add(day)
            elif last_done is None or day > last_done:
                last_done = day
    first = today if last_done is None else last_done + _DAY
    missed = {first + count * _DAY for count in range((today - first).days + 1)}
    return [day.isoformat() for day in sorted(begun | missed)]
