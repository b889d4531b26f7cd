"""Converts an xs:dateTime to microseconds since the epoch."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo

from cordata import to_us

_LAST_YEAR = 9000
_LAST_US = to_us(datetime(_LAST_YEAR, 1, 1, tzinfo=UTC))


def moment_us(value: str, zone: tzinfo) -> int:
    """Microseconds since the epoch. A value without a zone is in `zone`, the hotel's.

    Times before 1970 become 0, those after 9000 the beginning of that year. Raises: ValueError for
    a value that is not an xs:dateTime.
    """
    value = value.strip()
    if value.startswith("-"):
        return 0
    year = int(value.partition("-")[0][:9])
    if year < 1970:
        return 0
    if year > _LAST_YEAR:
        return _LAST_US
    # 24:00:00, the next day's first moment, is no time of a datetime.
    at = datetime.fromisoformat(value.replace("T24:", "T00:"))
    if at.tzinfo is None:
        at = at.replace(tzinfo=zone)
    if "T24:" in value:
        at += timedelta(days=1)
    return max(0, to_us(at))
