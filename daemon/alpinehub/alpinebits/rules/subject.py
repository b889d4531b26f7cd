"""What something in a rate plan tells of: a room, some guests, some days."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from typing import TYPE_CHECKING

from alpinehub.alpinebits.document import tag
from alpinehub.alpinebits.rules.inbound import day

if TYPE_CHECKING:
    from lxml.etree import _Element

START, END = "Start", "End"
#: Attributes that say what is told, and not of what it is told.
_VALUES = frozenset(
    {START, END, "Amount", "ChargeTypeCode", "AddToBasicRateIndicator", "MandatoryIndicator"}
)

Subject = tuple[object, ...]


def subject(element: _Element) -> Subject:
    """What a BookingRule, Rate or Supplement tells something of, whatever the days: its own
    attributes, and a room that it is only for. What has no days is of the whole plan, or of a
    Supplement, and there is one of it.
    """
    if element.get(START) is None and element.get("Code") is None:
        return (element.tag, element.get("InvTypeCode"), element.get("InvCode"))
    own = frozenset((k, v) for k, v in element.attrib.items() if k not in _VALUES)
    only = element.find(tag("PrerequisiteInventory"))
    return (own, frozenset(only.attrib.items()) if only is not None else None)


def days_of(element: _Element) -> tuple[date | None, date | None]:
    """The first and the last one, as far as they are told."""
    start, end = element.get(START), element.get(END)
    return (day(start) if start else None, day(end) if end else None)


def overlap(periods: Iterable[tuple[date, date]]) -> bool:
    """Whether some day is in two of them."""
    last = date.min
    for first, until in sorted(periods):
        if first <= last:
            return True
        last = max(last, until)
    return False
