"""A hotel's day: its bounds, and which reports are due. Wall time decides, summer and winter."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from cordata import to_us

#: Local time of the report on the day before.
REPORT_TIME = time(8, 0)
#: No downtime is longer: a clock that is wrong by years must not become a thousand mails.
MAX_DAYS = 366

_DAY = timedelta(days=1)


def day_bounds(day: date, time_zone: str) -> tuple[int, int]:
    """Microseconds since the epoch: first moment of a local day, and of the next (23 to 25 hours
    later; none at all for a day that a zone skipped).
    """
    zone = ZoneInfo(time_zone)
    return _start_us(day, zone), _start_us(day + _DAY, zone)


def _start_us(day: date, zone: ZoneInfo) -> int:
    # Midnight that summer time skips is read with the offset before the gap: its very moment.
    return to_us(datetime.combine(day, time(), zone))


def due_days(since: datetime, now: datetime, time_zone: str) -> list[date]:
    """The days to be reported by now, oldest first: from the one of `since` to the
    last whose morning after has come, MAX_DAYS at most.
    """
    zone = ZoneInfo(time_zone)
    local = now.astimezone(zone)
    last = local.date() - (_DAY if local.time() >= REPORT_TIME else 2 * _DAY)
    first = max(since.astimezone(zone).date(), last - (MAX_DAYS - 1) * _DAY)
    return [first + count * _DAY for count in range((last - first).days + 1)]
