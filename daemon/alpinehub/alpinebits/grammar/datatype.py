"""The types of attributes and texts that a grammar names, as restrictions of XML Schema's own.

`text16` is a text of 1 to 16 characters; `{a|b}` is one of these strings, `positive{1|2}` one of
these values of a type.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final


class UnknownDatatype(ValueError):
    """A grammar names a type that is none."""


@dataclass(frozen=True, slots=True)
class Datatype:
    """A simple type."""

    #: Of XML Schema.
    base: str = "string"
    pattern: str = ""
    #: Other facets by name.
    facets: tuple[tuple[str, str], ...] = ()
    #: One of these; empty: any that the rest allows.
    values: tuple[str, ...] = ()
    #: A union of these types of XML Schema, instead of all else.
    members: tuple[str, ...] = ()


_DIGITS = "[0-9]+"
_AMOUNT = r"[0-9]*\.?[0-9]*"
#: Of any value that is one: libxml2 sees past white space around it only where there is a pattern.
_ONE_WORD = r"\S+"

DATATYPES: Final[Mapping[str, Datatype]] = {
    "any": Datatype(),
    # Numbers: digits, and not the sign and exponent that XML Schema has beside them.
    "natural": Datatype("nonNegativeInteger", _DIGITS),
    "positive": Datatype("positiveInteger", _DIGITS),
    "decimal": Datatype("decimal"),
    "amount": Datatype("decimal", _AMOUNT, (("minInclusive", "0"),)),
    "price": Datatype("decimal", _AMOUNT, (("minExclusive", "0"),)),
    "currency": Datatype(facets=(("length", "3"),)),
    "digits_4": Datatype(pattern="[0-9]{4}"),
    "digits_8": Datatype(pattern="[0-9]{1,8}"),
    "digits_19": Datatype(pattern="[0-9]{1,19}"),
    # Days and times.
    "date": Datatype("date", _ONE_WORD),
    "date_time": Datatype("dateTime", _ONE_WORD),
    "moment": Datatype(members=("date", "dateTime", "time")),
    "day_or_moment": Datatype(members=("date", "dateTime")),
    "time": Datatype(pattern="[0-2][0-9]:[0-5][0-9]:[0-5][0-9]"),
    "day_of_any_year": Datatype(pattern="--[0-1][0-9]-[0-3][0-9]"),
    "month_and_day": Datatype(pattern="[0-1][0-9]-[0-3][0-9]"),
    "month_year": Datatype(pattern="(0[1-9]|1[0-2])[0-9]{2}"),
    "nights": Datatype(pattern="P[0-9]+N"),
    "days": Datatype(pattern="P[0-9]+D"),
    # Codes.
    "boolean": Datatype("boolean", _ONE_WORD),
    "true": Datatype("boolean", "1|true"),
    "language": Datatype("language", "[a-z]{2}"),
    "country": Datatype(pattern="[A-Z]{2}"),
    "amenity": Datatype(pattern=r"[0-9]{1,3}(\.[A-Z]{3})?"),
    "meal_plan": Datatype(values=("1", "3", "10", "12", "14")),
    "room_kind": Datatype(values=tuple("123456789")),
    "card_code": Datatype(pattern="[A-Z]{1,2}"),
    "letters_2": Datatype(pattern="[A-Z]{1,2}"),
    "letters": Datatype(pattern="[A-Z]+"),
    "token_32": Datatype(pattern="[0-9a-zA-Z]{1,32}"),
    "zeros_then_ones": Datatype(pattern="0*1*"),
    # Where somebody is reached.
    "email": Datatype(pattern=r"\S+@\S+"),
    "phone": Datatype(pattern=r"\+?[0-9]+"),
    "uri": Datatype("anyURI"),
    "web": Datatype("anyURI", "https?://.+"),
}

_TEXT = re.compile(r"text([0-9]*)")
_ONE_OF = re.compile(r"([a-z_0-9]*)\{(.*)\}")


def datatype(name: str) -> Datatype:
    """The type that a grammar calls so. Raises: UnknownDatatype."""
    if one_of := _ONE_OF.fullmatch(name):
        base = datatype(one_of[1] or "any")
        return replace(base, values=tuple(one_of[2].split("|")))
    if text := _TEXT.fullmatch(name):
        longest = (("maxLength", text[1]),) if text[1] else ()
        return Datatype(facets=(("minLength", "1"), *longest))
    try:
        return DATATYPES[name]
    except KeyError:
        raise UnknownDatatype(f"{name!r} is no type of values") from None
