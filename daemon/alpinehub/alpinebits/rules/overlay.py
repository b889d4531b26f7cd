"""Overlays of rate plans, and extracts of a plan.

An element of the overlay replaces the stored element of the same subject (`rate_plans.subject`) on
its days: the stored one is cut where they overlap. Elements without days are replaced as a whole.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from datetime import date

from lxml import etree
from lxml.etree import _Element

from alpinehub.alpinebits.document import MAX_BODY_BYTES, NAMESPACE, canonical, tag
from alpinehub.alpinebits.rules.rate_plans import END, START, Subject, days_of, subject
from alpinehub.alpinebits.rules.room_counts import Period, lay

#: Lists of a plan in their order; then the list that an overlay replaces as a whole.
_LISTS = ("BookingRules", "Rates", "Supplements")
_OFFERS, _DESCRIPTION = "Offers", "Description"


class TooLarge(Exception):
    """The plan would be larger than the largest that may be pushed."""


@dataclass(slots=True)
class _ByteBudget:
    """The bytes by which the plan may still grow when elements are cut into pieces."""

    left: int

    def take(self, one: _Element, pieces: int) -> None:
        if pieces > 1:
            self.left -= (pieces - 1) * (len(etree.tostring(one)) - len(f' xmlns="{NAMESPACE}"'))
        if self.left < 0:
            raise TooLarge


@dataclass(frozen=True, slots=True)
class _Replaced:
    """What an overlay replaces of one subject."""

    #: In order, with a gap between one and the next.
    days: tuple[Period, ...] = ()
    #: An element without days is among them.
    undated: bool = False


def apply_overlay(known: bytes, overlay: bytes, *, limit: int = MAX_BODY_BYTES) -> bytes:
    """The plan after an overlay; both as canonical XML. Raises: TooLarge."""
    old, new = etree.fromstring(known), etree.fromstring(overlay)
    for name, value in new.attrib.items():
        old.set(name, value)
    parts: list[_Element] = []
    budget = _ByteBudget(limit)
    for name in _LISTS:
        if (merged := _merge(old.find(tag(name)), new.find(tag(name)), budget)) is not None:
            parts.append(merged)
    offers = new.find(tag(_OFFERS))
    if offers is None:
        offers = old.find(tag(_OFFERS))
    if offers is not None:
        parts.append(offers)
    parts += _descriptions(old, new)
    old[:] = parts
    made = canonical(old)
    if len(made) > limit:
        raise TooLarge
    return made


def _merge(old: _Element | None, new: _Element | None, budget: _ByteBudget) -> _Element | None:
    if old is None or new is None:
        return new if old is None else old
    by_key: dict[Subject, list[_Element]] = {}
    for one in new:
        by_key.setdefault(subject(one), []).append(one)
    replaced = {key: _replaced_by(ones) for key, ones in by_key.items()}
    parts = [
        left for one in old for left in _left(one, replaced.get(subject(one), _Replaced()), budget)
    ]
    parts += list(new)
    # Elements without days hold for all that follow them: they come first.
    old[:] = sorted(parts, key=lambda one: one.get(START) is not None)
    return old


def _replaced_by(ones: Iterable[_Element]) -> _Replaced:
    spans = [days_of(one) for one in ones]
    dated = [Period(start.toordinal(), end.toordinal()) for start, end in spans if start and end]
    return _Replaced(lay(dated), undated=any(start is None for start, _ in spans))


def _left(old: _Element, replaced: _Replaced, budget: _ByteBudget) -> Iterator[_Element]:
    """The rest of a stored element: itself, or copies with the remaining days."""
    start, end = days_of(old)
    if start is None or end is None:
        if not replaced.undated:
            yield old
        return
    gaps = list(_gaps(start.toordinal(), end.toordinal(), replaced.days))
    budget.take(old, len(gaps))
    for first, last in gaps:
        yield _cut(old, date.fromordinal(first), date.fromordinal(last))


def _gaps(first: int, last: int, days: tuple[Period, ...]) -> Iterator[tuple[int, int]]:
    """The periods between the first and the last day that are not in `days`."""
    at = bisect_left(days, first, key=lambda one: one.last)
    while at < len(days) and days[at].first <= last:
        if days[at].first > first:
            yield first, days[at].first - 1
        first = days[at].last + 1
        at += 1
    if first <= last:
        yield first, last


def _cut(element: _Element, first: date, last: date) -> _Element:
    cut = deepcopy(element)
    cut.set(START, first.isoformat())
    cut.set(END, last.isoformat())
    return cut


def _descriptions(old: _Element, new: _Element) -> Iterator[_Element]:
    new_ones = {one.get("Name"): one for one in new.findall(tag(_DESCRIPTION))}
    for one in old.findall(tag(_DESCRIPTION)):
        yield new_ones.pop(one.get("Name"), one)
    yield from new_ones.values()


def select_days(known: bytes, first: date | None, last: date | None) -> bytes:
    """A plan without the elements whose days are all before `first` or after `last`."""
    plan = etree.fromstring(known)
    for name in _LISTS:
        list_ = plan.find(tag(name))
        if list_ is None:
            continue
        for one in list(list_):
            start, end = days_of(one)
            if start is None or end is None:
                continue
            if (first is not None and end < first) or (last is not None and start > last):
                list_.remove(one)
        if not len(list_):
            plan.remove(list_)
    return canonical(plan)


def title_only(known: bytes) -> bytes:
    """A plan with only its attributes and its title."""
    plan = etree.fromstring(known)
    for one in list(plan):
        if one.tag != tag(_DESCRIPTION) or one.get("Name") != "title":
            plan.remove(one)
    return canonical(plan)


def attributes(known: bytes) -> dict[str, str]:
    """The attributes of a plan."""
    return {str(name): str(value) for name, value in etree.fromstring(known).attrib.items()}
