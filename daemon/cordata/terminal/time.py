"""Durations and times: click callbacks for 90s, 30m, 24h, 7d, 2w, 2026-01-31, and as text."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import click
from msgspec import Struct

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DURATION = re.compile(r"([0-9]{1,8})([smhdw])")
#: 100 years: databases store microseconds in 64 bits.
_LONGEST = timedelta(days=36_500)


class Moment(Struct, frozen=True):
    """The value of a time option: an absolute time (`at`), or a duration before now (`ago`)."""

    typed: str
    at: datetime | None
    ago: timedelta = timedelta()

    def us(self, now_us: int) -> int:
        """The time in microseconds since the epoch; `now_us` is the time of the store."""
        from cordata.clock import to_us

        return now_us - self.ago // timedelta(microseconds=1) if self.at is None else to_us(self.at)

    def __str__(self) -> str:
        return f"{self.at:%Y-%m-%d %H:%M:%S %Z}" if self.at is not None else f"{self.typed} ago"


def moment(ctx: click.Context, parameter: click.Parameter, value: str | None) -> Moment | None:
    """An option's `90s`, `1h`, `2d` (ago), date or time. Raises: click.BadParameter."""
    if value is None:
        return None
    ago = _parsed(value)
    if ago is not None:
        return Moment(value, None, ago)
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        text = "is not a time; write 90s, 30m, 1h, 2d or 1w (ago), or 2026-01-31T08:00 (UTC)"
        raise click.BadParameter(f"{value!r} {text}") from None
    return Moment(value, at if at.tzinfo is not None else at.replace(tzinfo=UTC))


def duration(ctx: click.Context, parameter: click.Parameter, value: str) -> int:
    """An option's `90s`, `24h` or `90` in whole seconds. Raises: click.BadParameter."""
    found = _parsed(f"{value}s" if value.isdecimal() else value)
    if found is None:
        raise click.BadParameter(
            f"{value!r} is not a duration; write for example 90s, 30m, 24h or 7d"
        )
    return int(found.total_seconds())


def span(seconds: float | None) -> str:
    """A duration in the largest unit of which there are two: 12 s, 3 min, 5 h, 9 d; empty: None."""
    if seconds is None:
        return ""
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def _parsed(text: str) -> timedelta | None:
    match = _DURATION.fullmatch(text)
    found = timedelta(**{_UNITS[match[2]]: int(match[1])}) if match else None
    return found if found is not None and found <= _LONGEST else None
