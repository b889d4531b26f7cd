"""Converts an xs:dateTime to microseconds since the epoch."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from cordata import to_us

_PARTS = re.compile(
    r"(?P<sign>-?)(?P<year>[0-9]+)-(?P<day>[0-9]{2}-[0-9]{2})T(?P<time>[0-9:]{8})"
    r"(\.(?P<fraction>[0-9]+))?(?P<zone>Z|[+-][0-9]{2}:[0-9]{2})?"
)


def moment_us(value: str, time_zone: str) -> int:
    """Microseconds since the epoch. A value without a zone is in `time_zone`, the hotel's.

    Times before 1970 become 0, years after 9000 the year 9000. Raises: ValueError for a value
    that is not an xs:dateTime.
    """
    match = _PARTS.fullmatch(value.strip())
    if match is None:
        raise ValueError("not an xs:dateTime")
    year = int(match["year"][:9])
    if match["sign"] or year < 1970:
        return 0
    if year > 9000:
        year = 9000
    midnight_after = match["time"].startswith("24")  # 24:00:00 is the next day's first moment
    time = "00:00:00" if midnight_after else match["time"]
    day = match["day"] if match["day"] != "02-29" or _is_leap(year) else "02-28"
    fraction = (match["fraction"] or "")[:6].ljust(6, "0")
    zone = {"Z": "+00:00", None: ""}.get(match["zone"], match["zone"])
    at = datetime.fromisoformat(f"{year:04d}-{day}T{time}.{fraction}{zone}")
    if at.tzinfo is None:
        at = at.replace(tzinfo=ZoneInfo(time_zone))
    if midnight_after:
        at += timedelta(days=1)
    return max(0, to_us(at))


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
