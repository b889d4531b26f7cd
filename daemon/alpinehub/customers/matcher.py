"""By what a person is known in a text, and a text looked through for many persons at once."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from unicodedata import decimal

from alpinehub.customers.search import Customer

_NUMBER = re.compile(r"\+?[0-9][0-9 ()./\-\u00a0]{4,24}[0-9]")
#: Shorter ones are found in what is no telephone number.
_MIN_DIGITS = 7
#: What may be an address, from each place where one may begin: its end is that of `_whole`.
_ADDRESS = re.compile(r"(?<![\w.+%-])(?=([\w.+%-]++@[\w-]++(?:\.\w[\w-]*+)*+))")


@dataclass(frozen=True, slots=True)
class PersonMatcher:
    """By what somebody is known in a text."""

    hotel_id: int
    #: Lower case; "" is none.
    email: str
    #: Digits, in every way it is known to be written.
    numbers: frozenset[str]
    #: First and last name, lower case; "" unless both are known.
    name: str

    def is_named_in(self, text: str) -> bool:
        """Whether a text (lower case) holds his address, and not one that only contains it."""
        return bool(self.email) and self.email in text and bool(_whole(self.email).search(text))

    def is_in(self, text: str) -> bool:
        """Whether a text (lower case) holds his address or, without any address, his number."""
        return self.is_named_in(text) or _any_number_in(text, self.numbers)

    def may_be_in(self, text: str) -> bool:
        """Whether there is anything to hide in a text (lower case); much faster than to hide it."""
        return any(known in text for known in (self.email, self.name, *self.numbers) if known)

    def hide(self, text: str) -> str:
        """The text without him."""
        if self.email:
            text = _whole(self.email).sub("…", text)
        for known in (self.name, *self.numbers):
            if known:
                text = re.sub(rf"\+?{re.escape(known)}", "…", text, flags=re.IGNORECASE)
        return text


def _any_number_in(text: str, numbers: frozenset[str]) -> bool:
    """Whether a text without any address holds one of the numbers."""
    return bool(numbers) and "@" not in text and not numbers.isdisjoint(_read(text))


@dataclass(frozen=True, slots=True)
class GroupMatcher:
    """Everybody of one hotel who is looked for: what a text holds is looked up among them, so that
    it costs the same for one as for a thousand.
    """

    emails: frozenset[str]
    #: Whose address has a character that `_ADDRESS` knows not: tried one by one.
    odd: tuple[PersonMatcher, ...]
    numbers: frozenset[str]

    def is_named_in(self, text: str) -> bool:
        """Whether `PersonMatcher.is_named_in` is true of one of them."""
        if self.emails and "@" in text:
            if any(found[1] in self.emails for found in _ADDRESS.finditer(text)):
                return True
        return any(mark.is_named_in(text) for mark in self.odd)

    def is_numbered_in(self, text: str) -> bool:
        """Whether a text without any address holds a number of one of them."""
        return _any_number_in(text, self.numbers)


def group_matchers(marks: Sequence[PersonMatcher]) -> Mapping[int, GroupMatcher]:
    """By hotel."""
    by_hotel: defaultdict[int, list[PersonMatcher]] = defaultdict(list)
    for mark in marks:
        by_hotel[mark.hotel_id].append(mark)
    return {hotel_id: _crowd(ones) for hotel_id, ones in by_hotel.items()}


def _crowd(marks: Sequence[PersonMatcher]) -> GroupMatcher:
    odd = tuple(mark for mark in marks if mark.email and not _is_plain(mark.email))
    return GroupMatcher(
        emails=frozenset(mark.email for mark in marks if mark.email) - {mark.email for mark in odd},
        odd=odd,
        numbers=frozenset(number for mark in marks for number in mark.numbers),
    )


def _is_plain(email: str) -> bool:
    found = _ADDRESS.match(email)
    return found is not None and found[1] == email


@lru_cache(maxsize=256)
def _whole(email: str) -> re.Pattern[str]:
    """The address between what cannot be part of one."""
    around = r"(?<![\w.+%-])", r"(?![\w-]|\.\w)"
    return re.compile(re.escape(email).join(around), re.IGNORECASE)


def matcher_of(customer: Customer) -> PersonMatcher:
    """The mark of a row of `customer`."""
    written = (customer["phone"] or "", customer["phone_e164"] or "")
    numbers = frozenset(d for text in written if len(d := _digits(text)) >= _MIN_DIGITS)
    first, last = customer["first_name"], customer["last_name"]
    name = f"{first} {last}".lower() if first and last else ""
    return PersonMatcher(customer["hotel_id"], customer["email"] or "", numbers, name)


def _read(text: str) -> set[str]:
    """The telephone numbers of a text, as digits; of two with a "/" between each."""
    if not text.isascii():
        text = "".join(str(decimal(c)) if c.isdecimal() else c for c in text)
    written = [match[0] for match in _NUMBER.finditer(text)]
    found = {_digits(part) for one in written for part in (one, *one.split("/"))}
    return found | {digits.removeprefix("00") for digits in found}


def _digits(text: str) -> str:
    return "".join(c for c in text if c in "0123456789")
