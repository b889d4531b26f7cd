"""The days of a stay, adults and children: required, so each doubt is a problem with a name.

Every reader accepts any text: it returns None if the text cannot be read, and does not guess.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, timedelta

from msgspec import Struct

from alpinehub.webhooks.days import (
    YEARS,
    DateOrder,
    has_other_days,
    orders_of,
    read_day,
    read_days,
    slashed,
)
from alpinehub.webhooks.field_names import plain
from alpinehub.webhooks.fields import FieldResolver
from alpinehub.webhooks.problems import PAST, TOO_LONG
from alpinehub.webhooks.values import MAX_CHARS, NONE, line, read_count, read_language

_NUMBERS = re.compile(r"[0-9]+")
_HEADED = re.compile(
    r"([0-9]{1,2}) ?(?:kind|kid|child|bambin|enfant)[^\W\d_]*[ ,:;(\-]+(.*[0-9].*)", re.IGNORECASE
)
#: `2 (5+8)`, `2: 5, 8`: as many ages as the first number says.
_COUNTED = re.compile(r"([0-9]{1,2}) ?(?:[(:=]) ?([^(:=]*?[0-9][^(:=]*)")
#: `2 x 5`: two of that age.
_TIMES = re.compile(r"([0-9]{1,2}) ?[x×*] ?([0-9]{1,2})(?![0-9])", re.IGNORECASE)
#: More children of one age are not of one family.
_MAX_TIMES = 10
_GROUP = re.compile(
    r"([0-9]{1,2}) ?(?:erwachsene|adult)[^\W\d_]*[ ,;+&/]*(?:und |e |et |and )?(.*)", re.IGNORECASE
)
_CHILD = re.compile(
    "kind|child|kid|bambin|bimb|figli|enfant|b(?:é|e)b(?:é|e)|bab(?:y|ies)|s(?:ä|ae)ugling|infant|neonat|nourrisson|toddler",
    re.IGNORECASE,
)
#: With one of these a number is not an age in whole years: months, halves, bounds, ranges.
_NO_AGE = re.compile(
    r"monat|\bmes[ei]\b|\bmois\b|month|[0-9] ?mo?n?\b|woche|settiman|semaine|week"
    r"|\btagen?\b|giorn|\bjours?\b|\bdays?\b"
    r"|halb|half|\bdemi|\bmezz[oa]|[½¼¾<>]|[0-9]\.[0-9]|([0-9],5|\b1/2) ?[jya]|[0-9] ?[-–—] ?[0-9]"
    r"|\b(unter|(ü|ue)ber|bis|ab|(ä|ae)lter|j(ü|ue)nger|mindestens|h(ö|oe)chstens|fast|ca"
    r"|sotto|sopra|meno|pi[uù]|fino|oltre|tra|fra|quasi|circa|da [0-9]+ a"
    r"|moins|plus|jusqu|entre|sous|presque|environ|partir|de [0-9]+ [àa]"
    r"|under|below|over|above|between|to|than|least|most|younger|older|almost|nearly)\b",
    re.IGNORECASE,
)


def read_adults(text: str) -> int | None:
    """A number of adults; None also if the text mentions children."""
    return None if _CHILD.search(text) else read_count(text)


class Children(Struct, frozen=True):
    """The ages of children, or their number."""

    ages: tuple[int, ...] = ()
    #: None: as many as there are ages.
    count: int | None = None


def read_children(text: str, *, says_ages: bool) -> Children | None:
    """Ages (`5, 8`, `5 und 8 Jahre`, `2 Kinder: 5, 8`), or a count.

    `says_ages`: the field asks for ages, so a single number is an age; else it is a count.
    """
    text = line(text)
    if len(text) > MAX_CHARS or _NO_AGE.search(text):
        return None
    if plain(text) in NONE or not plain(text):
        return Children()
    if _TIMES.search(text):
        return _read_times(text)
    headed = _HEADED.fullmatch(text) or _COUNTED.fullmatch(text)
    numbers = [int(n[:4]) for n in _NUMBERS.findall(headed[2] if headed else text)]
    if not numbers:
        return None
    if headed:
        return _ages_of(numbers, int(headed[1]))
    if len(numbers) > 2 and numbers[0] == len(numbers) - 1 and _is_apart(text):
        return None  # `2 / 5, 8` may be two children
    if len(numbers) > 1 or says_ages:
        return _ages_of(numbers, None)
    return Children(count=numbers[0])


def _read_times(text: str) -> Children | None:
    found = [(int(count), int(age)) for count, age in _TIMES.findall(text)]
    if _NUMBERS.search(_TIMES.sub("", text)) or any(not 0 < n <= _MAX_TIMES for n, _ in found):
        return None
    ages = [age for count, age in found for _ in range(count)]
    return _ages_of(ages, len(ages))


def _is_apart(text: str) -> bool:
    """Whether the separator after the first number differs from the others."""
    first, *others = (between.strip() for between in _NUMBERS.split(text)[1:-1])
    return first not in others


def _ages_of(numbers: list[int], count: int | None) -> Children | None:
    if len(numbers) > 30 or any(age > 17 for age in numbers):
        return None
    return Children(tuple(numbers), count) if count in (None, len(numbers)) else None


def read_guests(text: str) -> tuple[int, Children | None] | None:
    """Adults and children in one field: `2 Erwachsene, 1 Kind (5)`. For a number alone the children
    are None: it may include them.
    """
    text = line(text)
    if len(text) > MAX_CHARS:
        return None
    match = _GROUP.fullmatch(text)
    if match is None:
        count = read_adults(text)
        return (count, None) if count is not None else None
    rest = match[2].strip(" ,;")
    children = read_children(rest, says_ages=False) if rest else Children()
    return (int(match[1]), children) if children is not None else None


_MAX_NIGHTS, _MAX_ADULTS, _MAX_CHILDREN = 366, 99, 30
_LOCALE = re.compile(r"([A-Za-z]{2})(?:[-_]([A-Za-z]{2}))?")
#: Countries that write the month first (CLDR).
_MONTH_FIRST = frozenset("US AS FM GU MH MP PH PR PW UM VI".split())
#: Words in names of fields in languages that write the day first.
_DAY_FIRST = frozenset(
    "anreise anreisedatum anreisetag ankunft ankunftsdatum abreise abreisedatum abreisetag "
    "zeitraum reisezeitraum aufenthalt erwachsene kinder nachricht vorname nachname "
    "arrivo partenza periodo soggiorno adulti bambini messaggio cognome nome notti "
    "arrivee sejour periode adultes enfants prenom nom courriel nuits".split()
)


def stay_of(resolver: FieldResolver) -> tuple[date, date] | None:
    """Arrival and departure; None if there are none, or with a problem."""
    arrival, departure = resolver.take_text("arrival"), resolver.take_text("departure")
    if not arrival and not departure:
        return _stay_of_dates(resolver)
    nights = resolver.take_text("nights") if not departure else ""
    if not (arrival and (departure or nights)):
        other = resolver.other_day()
        arrival, departure = arrival or other, departure or ("" if nights else other)
    texts = {"arrival": arrival, "departure": departure}
    order = order_of(resolver, texts)
    if order is None:
        _say_ambiguous(resolver, texts)
        return None
    first = _parse(resolver, "arrival", arrival, order)
    last = _parse(resolver, "departure", departure, order)
    if first is not None and nights:
        last = _after_nights(resolver, first, nights)
    if first is not None and last is not None:
        return _checked(resolver, first, last)
    _say_missing(resolver, first, last)
    return None


def _stay_of_dates(resolver: FieldResolver) -> tuple[date, date] | None:
    """As `stay_of`, for one field with both days."""
    text = resolver.take_text("dates")
    if not text:
        _say_missing(resolver, None, None)
        return None
    order = order_of(resolver, {"dates": text})
    if order is None:
        _say_ambiguous(resolver, {"dates": text})
        return None
    days = read_days(text, order, resolver.zone)
    if days is None:
        resolver.problems.append("unreadable:dates")
        return None
    return _checked(resolver, *days)


def order_of(resolver: FieldResolver, texts: Mapping[str, str]) -> DateOrder | None:
    """How to read 1/2/2027 in the days of a form; None: it is not known, and makes a difference.

    By the mapping, else the numbers (13/1/2027), else the guest's language (en-US), else the names
    of the fields (Anreise, arrivo), else the only order that gives a stay. Language and names do
    not count in a form that writes days in two ways.
    """
    chosen = resolver.mapping.date_order
    if chosen != "auto":
        return chosen
    pairs = [pair for text in texts.values() for pair in slashed(text)]
    orders = orders_of(pairs)
    if all(first == second for first, second in pairs):
        return "dmy"
    if len(orders) == 1:
        return orders[0]
    if not any(map(has_other_days, texts.values())) and (order := _order_of_words(resolver)):
        return order
    orders = [order for order in orders if _may_be_stay(resolver, texts, order)]
    return orders[0] if len(orders) == 1 else None


def _order_of_words(resolver: FieldResolver) -> DateOrder | None:
    """The order by the guest's language and the names of the fields; None: not known."""
    match = _LOCALE.fullmatch(resolver.language)
    if match is None:
        language = read_language(resolver.language) or ""
    elif match[2]:
        return "mdy" if match[2].upper() in _MONTH_FIRST else "dmy"
    else:
        language = match[1].lower()
    if language and language != "en":
        return "dmy"
    return "dmy" if not language and resolver.has_word(_DAY_FIRST) else None


def _may_be_stay(resolver: FieldResolver, texts: Mapping[str, str], order: DateOrder) -> bool:
    """Whether the days are a stay in this order."""
    if "dates" in texts:
        days = read_days(texts["dates"], order, resolver.zone)
        first, last = days or (None, None)
    else:
        first, last = (
            read_day(texts.get(name, ""), order, resolver.zone) for name in ("arrival", "departure")
        )
    if first is not None and resolver.today is not None and first < resolver.today:
        return False
    return first is None or last is None or 0 < (last - first).days <= _MAX_NIGHTS


def _say_ambiguous(resolver: FieldResolver, texts: Mapping[str, str]) -> None:
    resolver.problems += [
        f"ambiguous:{name}"
        for name, text in texts.items()
        if any(first != second for first, second in slashed(text))
    ]


def _say_missing(resolver: FieldResolver, arrival: date | None, departure: date | None) -> None:
    if resolver.problems or resolver.ambiguous:
        return
    if arrival is None and departure is None:
        if resolver.vague_days():
            resolver.problems += ["ambiguous:arrival", "ambiguous:departure"]
        elif resolver.mapping.without_stay == "review":
            resolver.problems += ["missing:arrival", "missing:departure"]
    else:
        resolver.problems.append("missing:arrival" if arrival is None else "missing:departure")


def _checked(resolver: FieldResolver, arrival: date, departure: date) -> tuple[date, date] | None:
    for name, day in (("arrival", arrival), ("departure", departure)):
        if day.year not in YEARS:
            resolver.problems.append(f"invalid:{name}")
    if departure <= arrival:
        resolver.problems.append("invalid:departure")
    elif (departure - arrival).days > _MAX_NIGHTS and not resolver.accept:
        resolver.problems.append(TOO_LONG)
    if resolver.today is not None and arrival < resolver.today and not resolver.accept:
        resolver.problems.append(PAST)
    return arrival, departure


def _parse(resolver: FieldResolver, target: str, text: str, order: DateOrder) -> date | None:
    if not text:
        return None
    day = read_day(text, order, resolver.zone)
    if day is None:
        resolver.problems.append(f"unreadable:{target}")
    return day


def _after_nights(resolver: FieldResolver, arrival: date, text: str) -> date | None:
    nights = read_count(text)
    if nights is None or not 0 < nights <= _MAX_NIGHTS:
        resolver.problems.append("unreadable:nights")
        return None
    return arrival + timedelta(days=nights) if arrival.year in YEARS else None


def guests_of(resolver: FieldResolver, *, has_stay: bool) -> tuple[int, tuple[int, ...]]:
    """The number of adults, and the ages of the children.

    Defaults count only with a stay, which needs a number. Without one the hotel reads the guests in
    a comment, where a default would look like an answer.
    """
    adults, children = _adults(resolver)
    if resolver.adults_assumed and not has_stay:
        adults = 0
    for target, says_ages in (("children", True), ("children_or_ages", False)):
        if text := resolver.take_text(target):
            said = read_children(text, says_ages=says_ages)
            if said is None:
                resolver.problems.append("unreadable:children")
            else:
                children.append(said)
    if text := resolver.take_text("children_count"):
        counted = read_count(text)
        said = read_children(text, says_ages=False) if counted is None else Children(count=counted)
        if said is None or said.count is None:
            resolver.problems.append("unreadable:children_count")
        else:
            children.append(said)
    return adults, _ages(resolver, children, has_stay=has_stay)


def _adults(resolver: FieldResolver) -> tuple[int, list[Children]]:
    """The number of adults, and the children of the same field."""
    children: list[Children] = []
    adults: int | None = None
    if text := resolver.take_value("adults"):
        adults = read_adults(text)
    elif text := resolver.take_value("guests"):
        found = read_guests(text)
        adults = found[0] if found else None
        if found and found[1] is not None:
            children.append(found[1])
        elif found and resolver.has_more_of("children"):
            resolver.ambiguous.append("adults")  # are the children among them?
    elif text := resolver.mapping.defaults.get("adults", ""):
        adults = read_count(text)
        resolver.adults_assumed = True
    elif not resolver.ambiguous:
        resolver.problems.append("missing:adults")
        return 0, children
    if adults is None or not 0 < adults <= _MAX_ADULTS:
        resolver.problems.append("unreadable:adults" if adults is None else "invalid:adults")
        return 0, children
    return adults, children


def _ages(resolver: FieldResolver, said: list[Children], *, has_stay: bool) -> tuple[int, ...]:
    """The ages of the children, if all fields agree."""
    ages = {one.ages for one in said if one.ages}
    counts = {one.count for one in said if one.count is not None}
    if len(ages) > 1 or len(counts) > 1:
        resolver.problems.append("ambiguous:children")
        return ()
    found, count = next(iter(ages), ()), next(iter(counts), None)
    if not found and count:
        if not has_stay and not resolver.problems:  # a lead: no stay was asked for
            asked = ("children_count", "children_or_ages", "guests")
            resolver.keep(next(filter(resolver.titles.get, asked), "children_count"), str(count))
            return ()
        default = read_count(resolver.mapping.defaults.get("child_age", ""))
        if default is None:
            resolver.problems.append("missing:children_ages")
            return ()
        found = (min(default, 17),) * min(count, _MAX_CHILDREN + 1)
    if (count is not None and count != len(found)) or len(found) > _MAX_CHILDREN:
        resolver.problems.append("invalid:children")
        return ()
    return found
