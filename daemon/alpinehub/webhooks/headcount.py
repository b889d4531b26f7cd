"""Adults and children as guests count them, read: how many, and how old.

Every function is total: any text gives a value, or None for one that cannot be read. None guesses.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from alpinehub.webhooks.field_names import plain
from alpinehub.webhooks.values import MAX_CHARS, line, read_count
from alpinehub.webhooks.vocabulary import NONE

_NUMBERS = re.compile(r"[0-9]+")
_HEADED = re.compile(
    r"([0-9]{1,2}) ?(?:kind|kid|child|bambin|enfant)[^\W\d_]*[ ,:;(\-]+(.*[0-9].*)", re.IGNORECASE
)
#: `2 (5+8)`, `2: 5, 8`: as many ages as the first number says.
_COUNTED = re.compile(r"([0-9]{1,2}) ?(?:[(:=]) ?([^(:=]*?[0-9][^(:=]*)")
#: `2 x 5`: two of that age.
_TIMES = re.compile(r"([0-9]{1,2}) ?[x×*] ?([0-9]{1,2})(?![0-9])", re.IGNORECASE)
#: More of one age are no children of one family.
_MAX_TIMES = 10
_GROUP = re.compile(
    r"([0-9]{1,2}) ?(?:erwachsene|adult)[^\W\d_]*[ ,;+&/]*(?:und |e |et |and )?(.*)", re.IGNORECASE
)
_CHILD = re.compile(
    "kind|child|kid|bambin|bimb|figli|enfant|b(?:é|e)b(?:é|e)|bab(?:y|ies)|s(?:ä|ae)ugling|infant|neonat|nourrisson|toddler",
    re.IGNORECASE,
)
#: Beside one of these a number is no age in whole years: months, halves, bounds, spans.
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
    """A number of adults; None as well where children are spoken of."""
    return None if _CHILD.search(text) else read_count(text)


@dataclass(frozen=True, slots=True)
class Children:
    """What a field says of children: their ages, or how many they are."""

    ages: tuple[int, ...] = ()
    #: None: as many as there are ages.
    count: int | None = None


def read_children(text: str, *, says_ages: bool) -> Children | None:
    """Ages (`5, 8`, `5 und 8 Jahre`, `2 Kinder: 5, 8`), or a count.

    `says_ages`: the field asks for ages, so that one number is one; else it is a count.
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
        return _ages(numbers, int(headed[1]))
    if len(numbers) > 2 and numbers[0] == len(numbers) - 1 and _is_apart(text):
        return None  # `2 / 5, 8` may be two children
    if len(numbers) > 1 or says_ages:
        return _ages(numbers, None)
    return Children(count=numbers[0])


def _read_times(text: str) -> Children | None:
    found = [(int(count), int(age)) for count, age in _TIMES.findall(text)]
    if _NUMBERS.search(_TIMES.sub("", text)) or any(not 0 < n <= _MAX_TIMES for n, _ in found):
        return None
    ages = [age for count, age in found for _ in range(count)]
    return _ages(ages, len(ages))


def _is_apart(text: str) -> bool:
    """Whether what follows the first number is not what stands between the others."""
    first, *others = (between.strip() for between in _NUMBERS.split(text)[1:-1])
    return first not in others


def _ages(numbers: list[int], count: int | None) -> Children | None:
    if len(numbers) > 30 or any(age > 17 for age in numbers):
        return None
    return Children(tuple(numbers), count) if count in (None, len(numbers)) else None


def read_guests(text: str) -> tuple[int, Children | None] | None:
    """Adults and children in one field: `2 Erwachsene, 1 Kind (5)`. Of a number alone nobody knows
    whether children are among them: None for them.
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
