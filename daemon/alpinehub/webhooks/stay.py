"""When, and how many: what a request cannot do without, so each doubt is a problem by name."""

from __future__ import annotations

from datetime import date, timedelta

from alpinehub.webhooks.asking import Asking
from alpinehub.webhooks.days import YEARS, read_day, read_days
from alpinehub.webhooks.headcount import Children, read_adults, read_children, read_guests
from alpinehub.webhooks.values import read_count

_MAX_NIGHTS, _MAX_ADULTS, _MAX_CHILDREN = 366, 99, 30


def stay_of(asking: Asking) -> tuple[date, date] | None:
    """The first night and the day of departure; None for none, or with a problem."""
    arrival, departure = _day(asking, "arrival"), _day(asking, "departure")
    if arrival is None and departure is None:
        arrival, departure = _both(asking)
    if arrival is not None and departure is None:
        departure = _after_nights(asking, arrival)
    if (arrival is None) != (departure is None):
        missing = "arrival" if arrival is None else "departure"
        other = _parse(asking, missing, asking.fields.other_day())
        arrival, departure = arrival or other, departure or other
    if arrival is not None and departure is not None:
        return _checked(asking, arrival, departure)
    _say_missing(asking, arrival, departure)
    return None


def _say_missing(asking: Asking, arrival: date | None, departure: date | None) -> None:
    if asking.problems or asking.fields.ambiguous:
        return
    if arrival is None and departure is None:
        if asking.fields.has_days():
            asking.problems += ["ambiguous:arrival", "ambiguous:departure"]
        elif asking.mapping.without_stay == "review":
            asking.problems += ["missing:arrival", "missing:departure"]
    else:
        asking.problems.append("missing:arrival" if arrival is None else "missing:departure")


def _checked(asking: Asking, arrival: date, departure: date) -> tuple[date, date] | None:
    for name, day in (("arrival", arrival), ("departure", departure)):
        if day.year not in YEARS:
            asking.problems.append(f"invalid:{name}")
    if departure <= arrival:
        asking.problems.append("invalid:departure")
    return arrival, departure


def _day(asking: Asking, target: str) -> date | None:
    return _parse(asking, target, asking.told(target))


def _parse(asking: Asking, target: str, text: str) -> date | None:
    if not text:
        return None
    day = read_day(text, asking.mapping.date_order, asking.zone)
    if day is None:
        asking.problems.append(f"unreadable:{target}")
    return day


def _both(asking: Asking) -> tuple[date, date] | tuple[None, None]:
    text = asking.told("dates")
    if not text:
        return None, None
    days = read_days(text, asking.mapping.date_order, asking.zone)
    if days is None:
        asking.problems.append("unreadable:dates")
        return None, None
    return days


def _after_nights(asking: Asking, arrival: date) -> date | None:
    text = asking.told("nights")
    if not text:
        return None
    nights = read_count(text)
    if nights is None or not 0 < nights <= _MAX_NIGHTS:
        asking.problems.append("unreadable:nights")
        return None
    return arrival + timedelta(days=nights) if arrival.year in YEARS else None


def people_of(asking: Asking) -> tuple[int, tuple[int, ...]]:
    """Adults, and the ages of the children."""
    adults, children = _adults(asking)
    for target, says_ages in (("children", True), ("children_or_ages", False)):
        if text := asking.told(target):
            said = read_children(text, says_ages=says_ages)
            if said is None:
                asking.problems.append("unreadable:children")
            else:
                children.append(said)
    if text := asking.told("children_count"):
        count = read_count(text)
        if count is None:
            asking.problems.append("unreadable:children_count")
        else:
            children.append(Children(count=count))
    return adults, _ages(asking, children)


def _adults(asking: Asking) -> tuple[int, list[Children]]:
    """Adults, and what the same field says of children."""
    children: list[Children] = []
    adults: int | None = None
    if text := asking.said("adults"):
        adults = read_adults(text)
    elif text := asking.said("guests"):
        found = read_guests(text)
        adults = found[0] if found else None
        if found and found[1] is not None:
            children.append(found[1])
        elif found and asking.fields.has_more_of("children"):
            asking.fields.ambiguous.append("adults")  # are the children among them?
    elif text := asking.mapping.defaults.get("adults", ""):
        adults = read_count(text)
    elif not asking.fields.ambiguous:
        asking.problems.append("missing:adults")
        return 0, children
    if adults is None or not 0 < adults <= _MAX_ADULTS:
        asking.problems.append("unreadable:adults" if adults is None else "invalid:adults")
        return 0, children
    return adults, children


def _ages(asking: Asking, said: list[Children]) -> tuple[int, ...]:
    """The ages of all that was said of children, if it agrees."""
    ages = {one.ages for one in said if one.ages}
    counts = {one.count for one in said if one.count is not None}
    if len(ages) > 1 or len(counts) > 1:
        asking.problems.append("ambiguous:children")
        return ()
    found, count = next(iter(ages), ()), next(iter(counts), None)
    if not found and count:
        default = read_count(asking.mapping.defaults.get("child_age", ""))
        if default is None:
            asking.problems.append("missing:children_ages")
            return ()
        found = (min(default, 17),) * min(count, _MAX_CHILDREN + 1)
    if (count is not None and count != len(found)) or len(found) > _MAX_CHILDREN:
        asking.problems.append("invalid:children")
        return ()
    return found
