"""A hotel's day: its bounds, and which reports are due. All rules are in local time."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from cordata import to_us

#: Local time at which the report on the previous day is due.
REPORT_TIME = time(8, 0)
#: Reports older than this are not sent: a clock that is wrong by years must not send 1,000 mails.
MAX_DAYS = 366

_DAY = timedelta(days=1)


def day_bounds(day: date, time_zone: str) -> tuple[int, int]:
    """Start of a local day and of the next, in microseconds since the epoch: 23 to 25 hours apart;
    equal for a day that a time zone skipped.
    """
    zone = ZoneInfo(time_zone)
    return _start_us(day, zone), _start_us(day + _DAY, zone)


def _start_us(day: date, zone: ZoneInfo) -> int:
    # A midnight that summer time skips gets the offset before the gap, which is the right moment.
    return to_us(datetime.combine(day, time(), zone))


def due_days(since: datetime, now: datetime, time_zone: str) -> list[date]:
    """The days whose report is due at `now`, oldest first: from the day of `since` to the last one
    whose REPORT_TIME has passed, MAX_DAYS at most.
    """
    zone = ZoneInfo(time_zone)
    local = now.astimezone(zone)
    last = local.date() - (_DAY if local.time() >= REPORT_TIME else 2 * _DAY)
    first = max(since.astimezone(zone).date(), last - (MAX_DAYS - 1) * _DAY)
    return [first + count * _DAY for count in range((last - first).days + 1)]
