"""When, and how many: what a request cannot do without, so each doubt is a problem by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, timedelta

from alpinehub.webhooks.days import (
    YEARS,
    Order,
    has_other_days,
    orders_of,
    read_day,
    read_days,
    slashed,
)
from alpinehub.webhooks.field_resolver import Asking
from alpinehub.webhooks.headcount import Children, read_adults, read_children, read_guests
from alpinehub.webhooks.values import read_count, read_language

_MAX_NIGHTS, _MAX_ADULTS, _MAX_CHILDREN = 366, 99, 30
_LOCALE = re.compile(r"([A-Za-z]{2})(?:[-_]([A-Za-z]{2}))?")
#: Countries that write the month first (CLDR).
_MONTH_FIRST = frozenset("US AS FM GU MH MP PH PR PW UM VI".split())
#: Words in the names of fields, of languages that write the day first.
_DAY_FIRST = frozenset(
    "anreise anreisedatum anreisetag ankunft ankunftsdatum abreise abreisedatum abreisetag "
    "zeitraum reisezeitraum aufenthalt erwachsene kinder nachricht vorname nachname "
    "arrivo partenza periodo soggiorno adulti bambini messaggio cognome nome notti "
    "arrivee sejour periode adultes enfants prenom nom courriel nuits".split()
)


def stay_of(asking: Asking) -> tuple[date, date] | None:
    """The first night and the day of departure; None for none, or with a problem."""
    arrival, departure = asking.told("arrival"), asking.told("departure")
    if not arrival and not departure:
        return _stay_of_dates(asking)
    nights = asking.told("nights") if not departure else ""
    if not (arrival and (departure or nights)):
        other = asking.fields.other_day()
        arrival, departure = arrival or other, departure or ("" if nights else other)
    texts = {"arrival": arrival, "departure": departure}
    order = order_of(asking, texts)
    if order is None:
        _say_ambiguous(asking, texts)
        return None
    first = _parse(asking, "arrival", arrival, order)
    last = _parse(asking, "departure", departure, order)
    if first is not None and nights:
        last = _after_nights(asking, first, nights)
    if first is not None and last is not None:
        return _checked(asking, first, last)
    _say_missing(asking, first, last)
    return None


def _stay_of_dates(asking: Asking) -> tuple[date, date] | None:
    """As `stay_of`, of one field for both days."""
    text = asking.told("dates")
    if not text:
        _say_missing(asking, None, None)
        return None
    order = order_of(asking, {"dates": text})
    if order is None:
        _say_ambiguous(asking, {"dates": text})
        return None
    days = read_days(text, order, asking.zone)
    if days is None:
        asking.problems.append("unreadable:dates")
        return None
    return _checked(asking, *days)


def order_of(asking: Asking, texts: Mapping[str, str]) -> Order | None:
    """How 1/2/2027 is meant in the days of a form; None: nobody knows, and it makes a difference.

    The operator says it, else the numbers (13/1/2027), else the guest's language (en-US), else the
    names of the fields (Anreise, arrivo); else one order gives no stay. In a form that writes days
    in two ways, languages say nothing.
    """
    chosen = asking.mapping.date_order
    if chosen != "auto":
        return chosen
    pairs = [pair for text in texts.values() for pair in slashed(text)]
    orders = orders_of(pairs)
    if all(first == second for first, second in pairs):
        return "dmy"
    if len(orders) == 1:
        return orders[0]
    if not any(map(has_other_days, texts.values())) and (order := _order_of_words(asking)):
        return order
    orders = [order for order in orders if _may_be_stay(asking, texts, order)]
    return orders[0] if len(orders) == 1 else None


def _order_of_words(asking: Asking) -> Order | None:
    """How the guest's language and the names of the fields write a day."""
    match = _LOCALE.fullmatch(asking.language)
    if match is None:
        language = read_language(asking.language) or ""
    elif match[2]:
        return "mdy" if match[2].upper() in _MONTH_FIRST else "dmy"
    else:
        language = match[1].lower()
    if language and language != "en":
        return "dmy"
    return "dmy" if not language and asking.fields.has_word(_DAY_FIRST) else None


def _may_be_stay(asking: Asking, texts: Mapping[str, str], order: Order) -> bool:
    """Whether the days are a stay in this order."""
    if "dates" in texts:
        days = read_days(texts["dates"], order, asking.zone)
        first, last = days or (None, None)
    else:
        first, last = (
            read_day(texts.get(name, ""), order, asking.zone) for name in ("arrival", "departure")
        )
    if first is not None and asking.today is not None and first < asking.today:
        return False
    return first is None or last is None or 0 < (last - first).days <= _MAX_NIGHTS


def _say_ambiguous(asking: Asking, texts: Mapping[str, str]) -> None:
    asking.problems += [
        f"ambiguous:{name}"
        for name, text in texts.items()
        if any(first != second for first, second in slashed(text))
    ]


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
    elif (departure - arrival).days > _MAX_NIGHTS:
        asking.problems.append("too_long:departure")
    if asking.today is not None and arrival < asking.today:
        asking.problems.append("past:arrival")
    return arrival, departure


def _parse(asking: Asking, target: str, text: str, order: Order) -> date | None:
    if not text:
        return None
    day = read_day(text, order, asking.zone)
    if day is None:
        asking.problems.append(f"unreadable:{target}")
    return day


def _after_nights(asking: Asking, arrival: date, text: str) -> date | None:
    nights = read_count(text)
    if nights is None or not 0 < nights <= _MAX_NIGHTS:
        asking.problems.append("unreadable:nights")
        return None
    return arrival + timedelta(days=nights) if arrival.year in YEARS else None


def customer_of(asking: Asking) -> tuple[int, tuple[int, ...]]:
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
        counted = read_count(text)
        said = read_children(text, says_ages=False) if counted is None else Children(count=counted)
        if said is None or said.count is None:
            asking.problems.append("unreadable:children_count")
        else:
            children.append(said)
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
        asking.adults_assumed = True
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
