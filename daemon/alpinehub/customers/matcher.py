"""Finds persons in a text: by their e-mail address, or by their telephone number.

    address ... as a whole, in upper or lower case: not eva@example.com in reva@example.com
    number .... all of its digits, with or without its country code, whatever separates them; in a
                text with an @ only if the number was asked for: people share numbers, and a
                misspelt address may be another person's

Digits that may belong to another number are not enough: by itself, between letters, commas
and the like, a number counts from MIN_DIGITS digits on; beside other digits, as in "0471 998877 (2
persons)", from _MIN_BESIDE digits on; and never behind the country code of another one.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Literal
from unicodedata import decimal
from urllib.parse import unquote, unquote_plus

from msgspec import Struct

from alpinehub.customers.phone import MIN_DIGITS, written_forms
from alpinehub.customers.search import Customer

#: Minimum number of digits of a number beside other digits: 1234567 is in 0664 1234567, too.
_MIN_BESIDE = 9
#: The longest number: E.164 has 15 digits; and those of 00 and (0).
_MAX_DIGITS = 18
#: Groups of digits, with separators of any kind between them. Possessive (++, *+): the memory of a
#: match does not grow with the text.
_RUN = re.compile(r"\+?[0-9]++(?:(?:[^\w\n\r\"]|_){1,4}+[0-9]++)*+")
#: Separators that stand between two numbers more often than within one.
_BETWEEN_NUMBERS = re.compile(r"[,;:|/\\&=<>\[\]{}]")
#: A group of digits, and whether a number with its country code begins here. A + between two digits
#: is a separator.
_GROUP = re.compile(r"(?:(?<![0-9])(\+)|(?=(00)))?([0-9]+)")
#: An e-mail address, from each place where one may begin; it ends where `_whole` lets one end.
_ADDRESS = re.compile(r"(?<![\w.+%-])(?=([\w.+%-]++@[\w-]++(?:\.\w[\w-]*+)*+))")
#: An escape of JSON.
_ESCAPE = re.compile(r"\\(?:u([0-9a-f]{4})|.)", re.IGNORECASE)

FoundBy = Literal["address", "number", "name"]


class PersonMatcher(Struct, frozen=True):
    """Finds one person in a text of a hotel."""

    hotel_id: int
    #: Lower case; "" is none.
    email: str
    #: The digits of the telephone number, in each way to write it.
    numbers: frozenset[str]
    #: First and last name, lower case; "" unless both are known.
    name: str = ""
    #: Whether the number is what was asked for: it counts beside an @, too.
    is_asked: bool = False

    def is_named_in(self, text: str) -> bool:
        """Whether a text (lower case) has the address, not only as a part of a longer one."""
        return bool(self.email) and self.email in text and bool(_whole(self.email).search(text))

    @property
    def known(self) -> tuple[str, ...]:
        """What `hide` looks for, in lower case; the longest number first, which has the others."""
        numbers = sorted(self.numbers, key=len, reverse=True)
        return tuple(filter(None, (self.email, self.name, *numbers)))

    def may_be_in(self, text: str) -> bool:
        """Whether `hide` may change a text (lower case); much faster than `hide`."""
        return any(known in text for known in self.known)

    def hide(self, text: str) -> str:
        """The text with the address, name and numbers replaced by an ellipsis."""
        for known in self.known:
            if known == self.email:
                text = _whole(known).sub("…", text)
            elif known == self.name:
                text = re.sub(re.escape(known), "…", text, flags=re.IGNORECASE)
            else:
                text = re.sub(rf"(?<![0-9])(?:\+|00)?{known}(?![0-9])", "…", text)
        return text


class GroupMatcher(Struct, frozen=True):
    """Finds any of several persons in a text, in the time that it takes to find one."""

    emails: frozenset[str]
    #: Persons whose address `_ADDRESS` does not match: tried one by one.
    odd: tuple[PersonMatcher, ...]
    numbers: frozenset[str]
    #: Numbers that count beside an @, too.
    asked: frozenset[str]

    def is_named_in(self, text: str) -> bool:
        """Whether `PersonMatcher.is_named_in` is true for one of them."""
        if self.emails and "@" in text:
            if any(found[1] in self.emails for found in _ADDRESS.finditer(text)):
                return True
        return any(matcher.is_named_in(text) for matcher in self.odd)

    def is_numbered_in(self, text: str) -> bool:
        """Whether a text has a number of one of them that counts there."""
        sought = self.asked if "@" in text else self.numbers
        return bool(sought) and any(
            number in sought or number.removeprefix("00") in sought for number in _numbers_in(text)
        )


def group_matchers(matchers: Sequence[PersonMatcher]) -> Mapping[int, GroupMatcher]:
    """Hotel id -> matcher of its persons."""
    by_hotel: defaultdict[int, list[PersonMatcher]] = defaultdict(list)
    for matcher in matchers:
        by_hotel[matcher.hotel_id].append(matcher)
    return {hotel_id: group_matcher(ones) for hotel_id, ones in by_hotel.items()}


def group_matcher(matchers: Sequence[PersonMatcher]) -> GroupMatcher:
    """The matcher of all these persons."""
    odd = tuple(matcher for matcher in matchers if matcher.email and not _is_plain(matcher.email))
    return GroupMatcher(
        emails=frozenset(matcher.email for matcher in matchers if matcher.email)
        - {matcher.email for matcher in odd},
        odd=odd,
        numbers=frozenset(number for matcher in matchers for number in matcher.numbers),
        asked=frozenset(n for matcher in matchers if matcher.is_asked for n in matcher.numbers),
    )


def _is_plain(email: str) -> bool:
    found = _ADDRESS.match(email)
    return found is not None and found[1] == email


@lru_cache(maxsize=256)
def _whole(email: str) -> re.Pattern[str]:
    """A pattern for the address that does not match a part of a longer address."""
    around = r"(?<![\w.+%-])", r"(?![\w-]|\.\w)"
    return re.compile(re.escape(email).join(around), re.IGNORECASE)


def matcher_of(customer: Customer) -> PersonMatcher:
    """The matcher of a row of `customer`. Takes a tenth of a millisecond."""
    number = customer["phone"]
    numbers = written_forms(number, customer["region"], customer["country"]) if number else ()
    first, last = customer["first_name"], customer["last_name"]
    name = f"{first} {last}".lower() if first and last else ""
    return PersonMatcher(customer["hotel_id"], customer["email"] or "", frozenset(numbers), name)


def _numbers_in(text: str) -> Iterator[str]:
    """What may be a telephone number in a text, as digits."""
    if not text.isascii():
        text = "".join(str(decimal(c)) if c.isdecimal() else c for c in text)
    for run in _RUN.finditer(text):
        if len(run[0]) >= MIN_DIGITS:
            for piece in {run[0], *_BETWEEN_NUMBERS.split(run[0])}:
                yield from _numbers_of(piece)


def _numbers_of(piece: str) -> Iterator[str]:
    """The numbers that the groups of digits of a text may be."""
    groups = [(found[3], bool(found[1] or found[2] == "00")) for found in _GROUP.finditer(piece)]
    #: Digits since the last country code; many, if there was none.
    since = MIN_DIGITS
    for first, (digits, has_code) in enumerate(groups):
        if has_code:
            since = 0
        elif since < MIN_DIGITS:
            since += len(digits)
            continue
        since += len(digits)
        number = ""
        for last, (more, _) in enumerate(groups[first : first + _MAX_DIGITS], first):
            number += more
            if len(number) > _MAX_DIGITS:
                break
            is_alone = first == 0 and last == len(groups) - 1
            if len(number) >= (MIN_DIGITS if is_alone else _MIN_BESIDE):
                yield number


def readable(text: str) -> str:
    """A text in lower case, with the escapes of JSON, or of a form, decoded; and once more with
    those of URLs in it, or with each + of a form as a space.
    """
    if text.lstrip().startswith(("{", "[")):
        if "\\" in text:
            with suppress(ValueError, RecursionError):  # parse_int: int reads 4300 digits at most
                text = json.dumps(json.loads(text, parse_int=str), ensure_ascii=False)
            text = _ESCAPE.sub(_unescaped, text)
    elif "=" in text and not text.lstrip().startswith("--"):  # a form that is not multipart
        return f"{unquote(text)}\n{unquote_plus(text)}".lower()
    return (f"{text}\n{unquote(text)}" if "%" in text else text).lower()


def _unescaped(escape: re.Match[str]) -> str:
    """The character of an escape in JSON that cannot be parsed. Decoded JSON still has those of
    quotation marks, backslashes and control characters, which neither an address nor a number has.
    """
    character = chr(int(escape[1], 16)) if escape[1] else "\n"
    return character if character.isprintable() or character.isspace() else "\n"
