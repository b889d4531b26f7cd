"""What guests write into fields, read: text, a count, yes and no, a country, an address, a number.

Days are read in days.py, adults and children in headcount.py.

Every function is total: any text gives a value, or None for one that cannot be read. None guesses.
"""

from __future__ import annotations

import re
from typing import Literal

from alpinehub.webhooks.countries import CODES, NAMES
from alpinehub.webhooks.vocabulary import FEMALE, LANGUAGES, MALE, NO, NONE, YES
from alpinehub.webhooks.words import plain

#: A day or a number of people in more than this is an essay: what is behind it would be lost.
MAX_CHARS = 200
#: What XML 1.0 cannot carry, and halves of characters.
_ILLEGAL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_WHITE = re.compile(r"[\s\u00a0]+")
EMAIL = re.compile(r'[^\s@<>(),;:"\\\[\]]{1,64}@[^\s@<>(),;:"\\\[\].]+(\.[^\s@<>(),;:"\\\[\].]+)+')
_PHONE = re.compile(r"\+?[0-9 ()./\-\u00a0]+")
_NOT_DIGIT = re.compile(r"[^0-9]")
#: Only Italy dials the 0 of its landlines from abroad, too; a mobile number of it has none.
_ITALIAN, _ITALIAN_MOBILE = "39", re.compile("393[0-9]{9}")
_LANGUAGE = re.compile(r"[A-Za-z]{2}([-_][A-Za-z0-9]{2,8})*")
_COUNT = re.compile(r"([0-9]{1,6})(?:[.,]0+)?(?: ?[^\W\d][^0-9]*)?")


def line(text: str) -> str:
    """Text as one line that XML can carry."""
    return _WHITE.sub(" ", _ILLEGAL.sub(" ", text)).strip()


def lines(text: str) -> str:
    """Text of several lines that XML can carry."""
    return _ILLEGAL.sub(" ", text.replace("\r\n", "\n").replace("\r", "\n")).strip()


def read_count(text: str) -> int | None:
    """A number of something: 2, 2.0, `2 Personen`; `keine` is 0."""
    text = line(text)
    if len(text) > MAX_CHARS:
        return None
    if plain(text) in NONE:
        return 0
    match = _COUNT.fullmatch(text)
    return int(match[1]) if match else None


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
