"""Parses days as guests write them; a time with a zone becomes the day at the hotel.

Every function accepts any text: it returns None if the text cannot be read, and does not guess.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date, datetime, tzinfo
from typing import Literal

from alpinehub.webhooks.field_names import plain
from alpinehub.webhooks.values import MAX_CHARS, MONTHS, line

#: How 1/2/2027 is read: day first, or month first.
DateOrder = Literal["dmy", "mdy"]

#: Years in which a stay may begin or end.
YEARS = range(2000, 2200)

_ISO_DAY = re.compile(r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})")
_ISO_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:.,]+ ?(Z|[+-][0-9]{2}:?[0-9]{2})?")
_DOTTED = re.compile(r"([0-9]{1,2})\. ?([0-9]{1,2})\. ?([0-9]{4}|[0-9]{2})")
_SLASHED = re.compile(r"([0-9]{1,2})([/-])([0-9]{1,2})\2([0-9]{4}|[0-9]{2})")
#: As `_SLASHED`, anywhere in a text.
_ANY_SLASHED = re.compile(
    r"(?<![0-9/-])([0-9]{1,2})([/-])([0-9]{1,2})\2(?:[0-9]{4}|[0-9]{2})(?![0-9])"
)
_WORDED = re.compile(
    r"([0-9]{1,2})(?:st|nd|rd|th|er|º|°)?\.? ?(?:of |de[il] ?)?([^\W\d_]+)\.?,? ?([0-9]{4})"
)
_AMERICAN = re.compile(r"([^\W\d_]+)\.? ([0-9]{1,2})(?:st|nd|rd|th)?,? ([0-9]{4})")
_ANY_DAY = re.compile(
    "|".join(
        re.sub(r"\((?!\?)", "(?:", p.pattern).replace(r"\2", "[/-]")
        for p in (_ISO_MOMENT, _ISO_DAY, _DOTTED, _SLASHED, _WORDED, _AMERICAN)
    )
)
#: JavaScript's Date.toString(): Mon Feb 01 2027 00:00:00 GMT+0100 (...).
_SCRIPTED = re.compile(r"[A-Z][a-z]{2} ([A-Z][a-z]{2}) ([0-9]{2}) ([0-9]{4}) [0-9:]{8} GMT.*")
_HOUR = re.compile(
    r"(?:,| um| alle| at| à)? [0-9]{1,2}"
    r"(?::[0-9]{2}(?::[0-9]{2})?(?: ?[AaPp][Mm])?|[:.][0-9]{2} Uhr| ?h(?: ?[0-9]{2})?)\Z"
)
#: In Italian and French without a comma.
_WEEKDAY = re.compile(
    r"^(?:[^\W\d_]{2,10}\.?, (?=\S)|(?:(?:lune|marte|mercole|giove|vener)d[iì]|sabato|domenica"
    r"|(?:lun|mar|mercre|jeu|vendre|same)di|dimanche) (?=[0-9]))",
    re.IGNORECASE,
)


def read_day(text: str, order: DateOrder, zone: tzinfo) -> date | None:
    """A day: 2027-02-01, a time (its day in `zone`), 01.02.2027, 1/2/2027 in the given `order`,
    1. Februar 2027, February 1, 2027; a time of day after it is ignored. None also for a day that
    does not exist.
    """
    text = _WEEKDAY.sub("", line(text))
    if len(text) > 100:
        return None
    if _ISO_MOMENT.fullmatch(text):
        return _day_of_moment(text, zone)
    if match := _SCRIPTED.fullmatch(text):
        return _day_of_words(match[3], match[1], match[2])
    text = _HOUR.sub("", text)
    if match := _ISO_DAY.fullmatch(text):
        return _day(match[1], match[2], match[3])
    if match := _DOTTED.fullmatch(text):
        return _day(match[3], match[2], match[1])
    if match := _SLASHED.fullmatch(text):
        first, second, year = match[1], match[3], match[4]
        return _day(year, second, first) if order == "dmy" else _day(year, first, second)
    if match := _WORDED.fullmatch(text):
        return _day_of_words(match[3], match[2], match[1])
    if match := _AMERICAN.fullmatch(text):
        return _day_of_words(match[3], match[1], match[2])
    return None


def _day_of_moment(text: str, zone: tzinfo) -> date | None:
    try:
        moment = datetime.fromisoformat(text.replace(" +", "+").replace(",", "."))
        return moment.astimezone(zone).date() if moment.tzinfo is not None else moment.date()
    except (ValueError, OverflowError):
        return None


def _day_of_words(year: str, month: str, day: str) -> date | None:
    number = MONTHS.get(plain(month))
    return _day(year, str(number), day) if number else None


def _day(year: str, month: str, day: str) -> date | None:
    number = int(year) + (2000 if len(year) == 2 else 0)
    try:
        found = date(number, int(month), int(day))
    except ValueError:
        return None
    return found if found.year in YEARS or found.year in range(1900, 2000) else None


def slashed(text: str) -> list[tuple[int, int]]:
    """The first two numbers of each 1/2/2027 in a text."""
    text = line(text[:MAX_CHARS])
    return [(int(match[1]), int(match[3])) for match in _ANY_SLASHED.finditer(text)]


def has_other_days(text: str) -> bool:
    """Whether a text has days that are not written like 1/2/2027."""
    return any(not slashed(match[0]) for match in _ANY_DAY.finditer(line(text[:MAX_CHARS])))


def orders_of(pairs: Iterable[tuple[int, int]]) -> list[DateOrder]:
    """The orders in which all these days are possible: 13/1/2027 cannot be month first."""
    found: list[DateOrder] = ["dmy", "mdy"]
    for first, second in pairs:
        if second > 12 and "dmy" in found:
            found.remove("dmy")
        if first > 12 and "mdy" in found:
            found.remove("mdy")
    return found


def read_days(text: str, order: DateOrder, zone: tzinfo) -> tuple[date, date] | None:
    """Two days in one field: `01.02.2027 - 08.02.2027`. None unless it holds exactly two."""
    text = line(text)
    found = [match[0] for match in _ANY_DAY.finditer(text[:MAX_CHARS])]
    if len(found) != 2 or len(text) > MAX_CHARS:
        return None
    first, last = (read_day(one, order, zone) for one in found)
    return (first, last) if first is not None and last is not None else None
