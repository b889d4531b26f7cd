"""What guests write into fields, read: days, numbers, ages, yes and no, countries.

Every function is total: any text gives a value, or None for one that cannot be read. None guesses.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, tzinfo
from typing import Literal

from alpinehub.webhooks.countries import CODES, NAMES
from alpinehub.webhooks.vocabulary import FEMALE, LANGUAGES, MALE, MONTHS, NO, NONE, YES
from alpinehub.webhooks.words import plain

Order = Literal["dmy", "mdy"]

#: What XML 1.0 cannot carry, and halves of characters.
_ILLEGAL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_WHITE = re.compile(r"[\s\u00a0]+")
#: Days that something may begin or end on.
YEARS = range(2000, 2200)

EMAIL = re.compile(r'[^\s@<>(),;:"\\\[\]]{1,64}@[^\s@<>(),;:"\\\[\].]+(\.[^\s@<>(),;:"\\\[\].]+)+')
_PHONE = re.compile(r"\+?[0-9 ()./\-\u00a0]+")
_NOT_DIGIT = re.compile(r"[^0-9]")
#: Only Italy dials the 0 of its landlines from abroad, too; a mobile number of it has none.
_ITALIAN, _ITALIAN_MOBILE = "39", re.compile("393[0-9]{9}")
_LANGUAGE = re.compile(r"[A-Za-z]{2}([-_][A-Za-z0-9]{2,8})*")

_ISO_DAY = re.compile(r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})")
_ISO_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:.,]+ ?(Z|[+-][0-9]{2}:?[0-9]{2})?")
_DOTTED = re.compile(r"([0-9]{1,2})\. ?([0-9]{1,2})\. ?([0-9]{4}|[0-9]{2})")
_SLASHED = re.compile(r"([0-9]{1,2})([/-])([0-9]{1,2})\2([0-9]{4}|[0-9]{2})")
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
#: As a browser writes it by itself: Mon Feb 01 2027 00:00:00 GMT+0100 (...).
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
_COUNT = re.compile(r"([0-9]{1,6})(?:[.,]0+)?(?: ?[^\W\d][^0-9]*)?")
_NUMBERS = re.compile(r"[0-9]+")
_HEADED = re.compile(
    r"([0-9]{1,2}) ?(?:kind|kid|child|bambin|enfant)[^\W\d_]*[ ,:;(\-]+(.*[0-9].*)", re.IGNORECASE
)
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


def line(text: str) -> str:
    """Text as one line that XML can carry."""
    return _WHITE.sub(" ", _ILLEGAL.sub(" ", text)).strip()


def lines(text: str) -> str:
    """Text of several lines that XML can carry."""
    return _ILLEGAL.sub(" ", text.replace("\r\n", "\n").replace("\r", "\n")).strip()


def read_day(text: str, order: Order, zone: tzinfo) -> date | None:
    """A day: 2027-02-01, a moment (its day in `zone`), 01.02.2027, 1/2/2027 as `order` says,
    1. Februar 2027, February 1, 2027; an hour behind it is not looked at. None as well for a day
    that does not exist.
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


def read_days(text: str, order: Order, zone: tzinfo) -> tuple[date, date] | None:
    """Two days in one field: `01.02.2027 - 08.02.2027`. None unless it holds exactly two."""
    found = [match[0] for match in _ANY_DAY.finditer(line(text)[:200])]
    if len(found) != 2:
        return None
    first, last = (read_day(one, order, zone) for one in found)
    return (first, last) if first is not None and last is not None else None


def read_count(text: str) -> int | None:
    """A number of something: 2, 2.0, `2 Personen`; `keine` is 0."""
    text = line(text)
    if plain(text) in NONE:
        return 0
    match = _COUNT.fullmatch(text)
    return int(match[1]) if match else None


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
    text = line(text)[:200]
    if plain(text) in NONE or not plain(text):
        return Children()
    if _NO_AGE.search(text):
        return None
    headed = _HEADED.fullmatch(text)
    numbers = [int(n[:4]) for n in _NUMBERS.findall(headed[2] if headed else text)]
    if not numbers:
        return None
    if headed:
        return _ages(numbers, int(headed[1]))
    if len(numbers) > 1 or says_ages:
        return _ages(numbers, None)
    return Children(count=numbers[0])


def _ages(numbers: list[int], count: int | None) -> Children | None:
    if len(numbers) > 30 or any(age > 17 for age in numbers):
        return None
    return Children(tuple(numbers), count) if count in (None, len(numbers)) else None


def read_guests(text: str) -> tuple[int, Children | None] | None:
    """Adults and children in one field: `2 Erwachsene, 1 Kind (5)`. Of a number alone nobody knows
    whether children are among them: None for them.
    """
    text = line(text)[:200]
    match = _GROUP.fullmatch(text)
    if match is None:
        count = read_adults(text)
        return (count, None) if count is not None else None
    rest = match[2].strip(" ,;")
    children = read_children(rest, says_ages=False) if rest else Children()
    return (int(match[1]), children) if children is not None else None


def read_yes(text: str) -> bool | None:
    """Whether a box is ticked."""
    word = plain(text)
    first = word.split(" ", 1)[0]
    if word in NO or first in ("nein", "no", "non"):
        return False
    return True if word in YES or first in ("ja", "si", "oui", "yes") else None


def read_gender(text: str) -> Literal["", "female", "male"]:
    """ "" for what says neither."""
    word = plain(text)
    if word in FEMALE:
        return "female"
    return "male" if word in MALE else ""


def read_country(text: str) -> str | None:
    """The ISO 3166 code of a country, by its code or its name."""
    code = line(text).upper()
    return code if code in CODES else NAMES.get(plain(text))


def read_language(text: str) -> str | None:
    """ISO 639-1 in lower case, of a code or of the names that matter here."""
    text = line(text)
    return text[:2].lower() if _LANGUAGE.fullmatch(text) else LANGUAGES.get(plain(text))


def read_email(text: str) -> str | None:
    """An e-mail address as written."""
    text = line(text)
    return text if len(text) <= 254 and EMAIL.fullmatch(text) else None


def read_phone(text: str) -> str | None:
    """The number without its layout: digits, + before a country code. None: it is no number."""
    if len(text) > 64 or not _PHONE.fullmatch(text):
        return None
    international = text.startswith(("+", "00"))
    if international:
        text = text.removeprefix("00")
        bare = _NOT_DIGIT.sub("", text.replace("(0)", ""))
        if not bare.startswith(_ITALIAN) or _ITALIAN_MOBILE.fullmatch(bare):
            text = bare
    digits = _NOT_DIGIT.sub("", text)
    if not 4 <= len(digits) <= 20:
        return None
    return f"+{digits}" if international else digits
