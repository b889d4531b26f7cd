"""Offers: whom a rate plan is for, and what some of them get for nothing.

first ......... for whom, when, for how long; never a discount
free nights ... Discount with NightsRequired and NightsDiscounted, once
family ........ Discount and Guests: some children for nothing, once
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from alpinehub.alpinebits.document import tag
from alpinehub.alpinebits.outcome import INVALID_VALUE
from alpinehub.alpinebits.rules.inbound import MISSING, Problems, count
from alpinehub.alpinebits.rules.pricing import Pricing

if TYPE_CHECKING:
    from lxml.etree import _Element

_ADULT, _CHILD = "10", "8"
#: Who is older is no child anywhere.
_MAX_ADULT_AGE = 18

_Say = Callable[[int, str], None]


def check_offers(plan: _Element, at: int, problems: Problems) -> None:
    """Those of one plan."""

    def say(code: int, text: str) -> None:
        problems.add(code, f"RatePlan {at}: {text}")

    offers = list(_all(plan, "Offer"))
    kinds: list[str] = []
    for place, offer in enumerate(offers):
        rule, discount = _first(offer, "OfferRule"), _first(offer, "Discount")
        if place:
            kinds.append(_check_discount(offer, discount, say))
            continue
        if discount is not None or _first(offer, "Guests") is not None:
            say(INVALID_VALUE, "the first Offer says for whom the plan is and is no discount")
        if rule is None:
            say(MISSING, "OfferRule of the first Offer is missing")
            continue
        Pricing(problems, at).check_lengths(rule)
        _check_offsets(rule, say)
        _check_occupancies(list(_all(rule, "Occupancy")), say)
    if any(kinds.count(kind) > 1 for kind in ("family", "free nights")):
        say(INVALID_VALUE, "two Offers are discounts of one kind")


def _check_offsets(rule: _Element, say: _Say) -> None:
    least, most = (
        count(rule.get(f"{which}AdvancedBookingOffset", "").strip("PD")) for which in ("Min", "Max")
    )
    if least is not None and most is not None and least > most:
        say(INVALID_VALUE, "MinAdvancedBookingOffset is greater than MaxAdvancedBookingOffset")


def _check_occupancies(told: list[_Element], say: _Say) -> None:
    """Adults are there, and so are children if they are told apart by an age."""
    by_code = {one.get("AgeQualifyingCode"): one for one in told}
    adults, children = by_code.get(_ADULT), by_code.get(_CHILD)
    if len(by_code) < len(told):
        say(INVALID_VALUE, "an AgeQualifyingCode stands twice among the Occupancy of an OfferRule")
    if adults is None:
        say(MISSING, "Occupancy of adults (AgeQualifyingCode 10) is missing")
        return
    if adults.get("MaxAge") is not None:
        say(INVALID_VALUE, "Occupancy of adults has a MaxAge")
    for one in told:
        least, most = _number(one, "MinOccupancy"), _number(one, "MaxOccupancy")
        if least is not None and most is not None and least > most:
            say(INVALID_VALUE, "MinOccupancy is greater than MaxOccupancy")
    adult = _number(adults, "MinAge")
    if (children is None) is not (adult is None):
        say(MISSING, "MinAge of adults and Occupancy of children stand or fall together")
        return
    if children is None or adult is None:
        return
    youngest, oldest = _number(children, "MinAge"), _number(children, "MaxAge")
    if adult > _MAX_ADULT_AGE:
        say(INVALID_VALUE, f"MinAge of adults is greater than {_MAX_ADULT_AGE}")
    if (youngest or 0) >= adult or (oldest or 0) > adult or (oldest and (youngest or 0) >= oldest):
        say(INVALID_VALUE, "the ages of children and adults are not in order")


def _check_discount(offer: _Element, discount: _Element | None, say: _Say) -> str:
    """What kind of a discount an Offer is; "" when it is none that there is."""
    guest = _first(offer, "Guest")
    if discount is None:
        say(MISSING, "Discount of an Offer after the first one is missing")
        return ""
    required, free = _number(discount, "NightsRequired"), _number(discount, "NightsDiscounted")
    pattern = discount.get("DiscountPattern")
    if required is None and free is None and pattern is None:
        if guest is None:
            say(MISSING, "Discount of an Offer says neither nights nor Guests")
            return ""
        _check_family(guest, say)
        return "family"
    if required is None or free is None:
        say(MISSING, "NightsRequired or NightsDiscounted is missing")
    elif free > required:
        say(INVALID_VALUE, "NightsDiscounted is greater than NightsRequired")
    elif pattern is not None and pattern != "0" * (required - free) + "1" * free:
        say(INVALID_VALUE, "DiscountPattern is not what NightsRequired and NightsDiscounted say")
    return "free nights"


def _check_family(guest: _Element, say: _Say) -> None:
    if guest.get("AgeQualifyingCode", "").strip() != _CHILD:
        say(INVALID_VALUE, "Guest of a family offer is no child (AgeQualifyingCode 8)")
    needed, free = _number(guest, "MinCount"), _number(guest, "LastQualifyingPosition")
    if needed is not None and free is not None and free > needed:
        say(INVALID_VALUE, "LastQualifyingPosition is greater than MinCount")


def _number(element: _Element, name: str) -> int | None:
    value = element.get(name)
    return None if value is None else count(value)


def _all(element: _Element, name: str) -> Iterable[_Element]:
    return element.iter(tag(name))


def _first(element: _Element, name: str) -> _Element | None:
    return next(iter(_all(element, name)), None)
