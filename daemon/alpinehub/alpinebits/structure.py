"""Checks a request against the structure of its action, told in Python: no schema is shipped.

Only what the requests handled here need of XML Schema is expressible: attributes, sequences of
child elements with least and most, and text. Everything not named is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from alpinehub.alpinebits.document import NAMESPACE

if TYPE_CHECKING:
    from lxml.etree import _Element

#: Whether a value, as written, is of a type.
Check = Callable[[str], bool]

_SCHEMA_LOCATIONS = {
    "{http://www.w3.org/2001/XMLSchema-instance}schemaLocation",
    "{http://www.w3.org/2001/XMLSchema-instance}noNamespaceSchemaLocation",
}


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute and the type of its value."""

    check: Check
    required: bool = False


@dataclass(frozen=True, slots=True)
class Element:
    """An element: its attributes and what may stand inside."""

    name: str
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    children: tuple[Child, ...] = ()
    #: Type of the text; None: no text but white space between children.
    text: Check | None = None
    #: Anything may stand inside, and on it.
    open: bool = False


@dataclass(frozen=True, slots=True)
class Child:
    """A place in a sequence of elements."""

    element: Element
    least: int = 1
    #: None: any number.
    most: int | None = 1


def find_problem(element: _Element, expected: Element) -> str | None:
    """What is wrong with an element, in a sentence that names the place, or None."""
    if element.tag != f"{{{NAMESPACE}}}{expected.name}":
        return f"{expected.name} in namespace {NAMESPACE} expected, {_name(element)} found"
    return next(_problems(element, expected), None)


def _problems(element: _Element, expected: Element) -> Iterator[str]:
    """Problems of an element that has the right name."""
    if expected.open:
        return
    yield from _attribute_problems(element, expected)
    if expected.children:
        if _loose_text(element):
            yield f"{expected.name} holds text where only elements may be"
        yield from _child_problems(element, expected)
        return
    if len(element):
        yield f"{expected.name} may not hold {_name(element[0])}"
    text = element.text or ""
    if expected.text is None and text:
        yield f"{expected.name} must be empty"
    elif expected.text is not None and not expected.text(text):
        yield f"the text of {expected.name} is not valid"


def _attribute_problems(element: _Element, expected: Element) -> Iterator[str]:
    for key, value in element.attrib.items():
        name = str(key)
        attribute = expected.attributes.get(name)
        if attribute is not None:
            if not attribute.check(str(value)):
                yield f"{expected.name}/@{name} is not valid"
        elif name not in _SCHEMA_LOCATIONS:
            yield f"{expected.name}/@{name} is not allowed"
    for name, attribute in expected.attributes.items():
        if attribute.required and element.get(name) is None:
            yield f"{expected.name}/@{name} is missing"


def _child_problems(element: _Element, expected: Element) -> Iterator[str]:
    """Walks the children and the places of the sequence side by side."""
    children = list(element)
    at = 0
    for place in expected.children:
        tag = f"{{{NAMESPACE}}}{place.element.name}"
        count = 0
        while at < len(children) and children[at].tag == tag and count != place.most:
            yield from _problems(children[at], place.element)
            at += 1
            count += 1
        if count < place.least:
            yield f"{expected.name} must hold {place.element.name} here"
            return
    if at < len(children):
        yield f"{expected.name} may not hold {_name(children[at])} here"


def _loose_text(element: _Element) -> bool:
    if element.text and element.text.strip(_WHITE):
        return True
    return any(child.tail and child.tail.strip(_WHITE) for child in element)


def _name(element: _Element) -> str:
    """An element's name for a message: bounded, since the client chose it."""
    name = str(element.tag).rsplit("}", 1)[-1]
    return name if len(name) <= 40 else f"{name[:40]}…"


# Types of values. XML Schema's white space "collapse" is applied where the type says so.

_WHITE = " \t\r\n"
_DIGITS = re.compile(r"[0-9]+")
_DATE_TIME = re.compile(
    r"-?([1-9][0-9]{3,}|0[0-9]{3})-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
    r"T(([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?|24:00:00(\.0+)?)"
    r"(Z|[+-]((0[0-9]|1[0-3]):[0-5][0-9]|14:00))?"
)
_MONTH_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def anything(_value: str) -> bool:
    """Any value."""
    return True


def text_of(least: int, most: int | None = None) -> Check:
    """A string of so many characters."""
    return lambda value: least <= len(value) and (most is None or len(value) <= most)


def one_of(*values: str) -> Check:
    """Exactly one of these strings."""
    return frozenset(values).__contains__


def positive_integer(value: str) -> bool:
    """Digits, more than 0; white space around is not part of the value."""
    digits = value.strip(_WHITE)
    return _DIGITS.fullmatch(digits) is not None and digits.strip("0") != ""


def date_time(value: str) -> bool:
    """xs:dateTime: a day that exists, a time, a zone or none."""
    match = _DATE_TIME.fullmatch(value.strip(_WHITE))
    if match is None:
        return False
    year, month, day = int(match[1]), int(match[2]), int(match[3])
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return day <= _MONTH_DAYS[month - 1] and (month != 2 or day <= 28 or leap)
