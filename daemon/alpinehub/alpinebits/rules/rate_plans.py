"""RatePlans: the prices that hotel software pushes, and the rules that a schema cannot express.

    New, Full ... the whole plan
    Overlay ..... replaces parts of a plan on some days (`overlay.py`)
    Remove ...... deletes the plan

The rules are those of the AlpineBits Alliance's own test application for rate plans. A missing
value is accepted where the plan still means something without it; a contradiction is an error,
because it would be a wrong price on a web page.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Final, Literal, cast

from alpinehub.alpinebits.document import canonical, descendant, descendants, listed, tag
from alpinehub.alpinebits.outcome import INVALID_DATES, INVALID_VALUE, MISSING, UNABLE
from alpinehub.alpinebits.reader import INBOUND_BYTES, INBOUND_MARKUP, Reader
from alpinehub.alpinebits.rules.inbound_message import (
    InboundMessage,
    Problems,
    any_overlap,
    check_texts,
    count,
    day,
)

if TYPE_CHECKING:
    from lxml.etree import _Element

Kind = Literal["New", "Full", "Overlay", "Remove"]

START, END = "Start", "End"
_TYPE, _CODE = "RatePlanNotifType", "RatePlanCode"
#: Values of AgeQualifyingCode.
_ADULT, _CHILD = "10", "8"
#: The highest age of a child.
_MAX_CHILD_AGE = 21
#: The highest MinAge of adults.
_MAX_ADULT_MIN_AGE = 18
_CURRENCY = re.compile(r"[A-Z]{3}")
_WEEK = re.compile("[01]{7}")
#: Attributes that hold values; the others identify what the values are for.
_VALUES: Final = frozenset(
    {START, END, "Amount", "ChargeTypeCode", "AddToBasicRateIndicator", "MandatoryIndicator"}
)

#: What a BookingRule, Rate or Supplement is for, without its days.
Subject = tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One plan of a push."""

    code: str
    kind: Kind
    #: The RatePlan as canonical XML, without its RatePlanNotifType.
    body: bytes
    #: The latest day on which something of it begins.
    latest: date | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RatePlansMessage(InboundMessage):
    """A push of rate plans."""

    #: The message replaces all stored plans.
    complete: bool = False
    plans: tuple[Plan, ...] = ()


def _read(root: _Element) -> RatePlansMessage:
    elements = root[-1]
    complete = root.find(tag("UniqueID")) is not None
    problems = Problems()
    plans: list[Plan] = []
    if not _is_reset(elements):
        plans = [_PlanCheck(problems, at).read(one) for at, one in enumerate(elements, start=1)]
        codes = [one.code for one in plans if one.code]
        if len(set(codes)) < len(codes):
            problems.add(INVALID_VALUE, "a RatePlanCode is listed twice")
        if complete and any(one.kind in ("Overlay", "Remove") for one in plans):
            problems.add(
                UNABLE, "a complete set holds whole plans only: neither Overlay nor Remove"
            )
    elif not complete:
        problems.add(UNABLE, "a single empty RatePlan deletes all, which needs a complete set")
    return RatePlansMessage(
        hotel_code=elements.get("HotelCode"),
        hotel_name=elements.get("HotelName"),
        findings=tuple(problems.findings),
        uses=frozenset({"rateplans"}),
        complete=complete,
        plans=() if problems else tuple(plans),
        room_types=frozenset() if problems else _room_types(elements),
    )


RATES = Reader(
    root="OTA_HotelRatePlanNotifRQ",
    read=_read,
    type=RatePlansMessage,
    max_bytes=INBOUND_BYTES,
    max_markup=INBOUND_MARKUP,
)


def _is_reset(plans: _Element) -> bool:
    return len(plans) == 1 and not len(plans[0]) and not plans[0].attrib


def _room_types(plans: _Element) -> frozenset[str]:
    rates = plans.iter(tag("Rate"))
    return frozenset(code for one in rates if (code := one.get("InvTypeCode")) is not None)


def subject(element: _Element) -> Subject:
    """What a BookingRule, Rate or Supplement is for: its attributes without _VALUES, and the room
    that it is restricted to. An element without days is for the whole plan (a Supplement: for its
    code), so that there is one of each.
    """
    if element.get(START) is None and element.get("Code") is None:
        return (element.tag, element.get("InvTypeCode"), element.get("InvCode"))
    own = frozenset((k, v) for k, v in element.attrib.items() if k not in _VALUES)
    only = element.find(tag("PrerequisiteInventory"))
    return (own, frozenset(only.attrib.items()) if only is not None else None)


def days_of(element: _Element) -> tuple[date | None, date | None]:
    """The first and the last day; None: not given."""
    start, end = element.get(START), element.get(END)
    return (day(start) if start else None, day(end) if end else None)


class _PlanCheck:
    """Reads one RatePlan, and adds its errors to the problems."""

    def __init__(self, problems: Problems, at: int) -> None:
        self._problems = problems
        #: Number of the plan in its message.
        self._at = at

    def read(self, plan: _Element) -> Plan:
        """The plan, to be used only if there are no problems."""
        kind, code = plan.get(_TYPE), plan.get(_CODE)
        plan.attrib.pop(_TYPE, "")
        for name, value in ((_TYPE, kind), (_CODE, code)):
            if value is None:
                self._missing(name)
        currency = plan.get("CurrencyCode")
        if currency is None and kind in ("New", "Full"):
            self._missing("CurrencyCode")
        if currency is not None and not _CURRENCY.fullmatch(currency):
            self._wrong("CurrencyCode is none of ISO 4217")
        latest = self._check_dates(plan)
        for rate in descendants(plan, "Rate"):
            if rate.get(START) is not None and rate.get("InvTypeCode") is None:
                self._missing("InvTypeCode of a Rate with dates")
        if plan.get("RatePlanCategory") is not None and plan.get("RatePlanType") is None:
            self._add(MISSING, "RatePlanCategory without RatePlanType")
        names = [one.get("Name") for one in plan.findall(tag("Description"))]
        if len(set(names)) < len(names):
            self._wrong("a Description is listed twice")
        self._check_prices(plan)
        self._check_offers(plan)
        check_texts(plan, self._problems)
        body = canonical(plan)
        return Plan(code=code or "", kind=cast(Kind, kind), body=body, latest=latest)

    def _check_dates(self, plan: _Element) -> date | None:
        """The latest day on which something begins."""
        latest: date | None = None
        for one in plan.iter():
            start, end = one.get(START), one.get(END)
            if start is None and end is None:
                continue
            if start is None or end is None:
                self._add(INVALID_DATES, "Start or End stands alone")
                continue
            first, last = day(start), day(end)
            if first is None or last is None or last < first:
                self._add(INVALID_DATES, "invalid combination of Start and End")
                continue
            latest = max(first, latest or first)
        return latest

    # Prices: BookingRules, Rates, Supplements

    def _check_prices(self, plan: _Element) -> None:
        rules, rates, supplements = (
            list(listed(plan, name)) for name in ("BookingRules", "Rates", "Supplements")
        )
        for rule in rules:
            self._check_booking_rule(rule)
        for place, rate in enumerate(rates):
            if rate.get(START) is None:
                self._check_static_rate(rate, place)
            else:
                self._check_rate(rate, plan.get("CurrencyCode"))
        for supplement in supplements:
            self._check_supplement(supplement)
        for name, elements in (
            ("BookingRule", rules),
            ("Rate", rates),
            ("Supplement", supplements),
        ):
            self._check_overlaps(name, elements)
        static = [one.get("InvCode") for one in supplements if one.get(START) is None]
        if len(set(static)) < len(static):
            self._wrong("a Supplement without dates stands twice for one InvCode")

    def _check_overlaps(self, name: str, elements: Iterable[_Element]) -> None:
        periods: dict[Subject, list[tuple[int, int]]] = {}
        for one in elements:
            first, last = days_of(one)
            if first is not None and last is not None:
                days = (first.toordinal(), last.toordinal())
                periods.setdefault(subject(one), []).append(days)
        if any(map(any_overlap, periods.values())):
            self._add(INVALID_DATES, f"dates of one {name} overlap")

    def _check_booking_rule(self, rule: _Element) -> None:
        if rule.get(START) is None:
            self._add(INVALID_DATES, "Start and End of a BookingRule are missing")
        if (rule.get("Code") is None) is not (rule.get("CodeContext") is None):
            self._add(MISSING, "Code or CodeContext of a BookingRule stands alone")
        self._check_lengths(rule)

    def _check_lengths(self, rule: _Element) -> None:
        """LengthsOfStay: each kind once, and the minimum not greater than the maximum."""
        nights_of: dict[str, int] = {}
        for one in listed(rule, "LengthsOfStay"):
            kind, nights = one.get("MinMaxMessageType", ""), count(one.get("Time", ""))
            if kind in nights_of:
                self._wrong(f"a LengthOfStay {kind} is listed twice")
            if nights is None:
                self._wrong("Time of a LengthOfStay is no number of nights")
            nights_of[kind] = nights or 0
        for least, most in (("SetMinLOS", "SetMaxLOS"), ("SetForwardMinStay", "SetForwardMaxStay")):
            if least in nights_of and most in nights_of and nights_of[least] > nights_of[most]:
                self._wrong(f"{least} is greater than {most}")

    def _check_static_rate(self, rate: _Element, place: int) -> None:
        """A Rate without dates applies to all others, and must be the first."""
        if rate.get("InvTypeCode") is not None:
            self._add(INVALID_DATES, "Start and End of a Rate with InvTypeCode are missing")
            return
        if place:
            self._wrong("a Rate without dates is not the first one")
        if (rate.get("RateTimeUnit") is None) is not (rate.get("UnitMultiplier") is None):
            self._add(MISSING, "RateTimeUnit or UnitMultiplier of the first Rate stands alone")
        amounts = list(listed(rate, "BaseByGuestAmts"))
        if len(amounts) > 1 or any(one.get("Type") is None for one in amounts):
            self._wrong("the first Rate, without dates, has one BaseByGuestAmt, with its Type")

    def _check_rate(self, rate: _Element, currency: str | None) -> None:
        guests: set[int | None] = set()
        for one in listed(rate, "BaseByGuestAmts"):
            number = one.get("NumberOfGuests")
            if number is None or one.get("AmountAfterTax") is None:
                self._missing("NumberOfGuests or AmountAfterTax of a Rate")
                continue
            if count(number) in guests:
                self._wrong("a NumberOfGuests stands twice in one Rate")
            guests.add(count(number))
            if one.get("AgeQualifyingCode", _ADULT).strip() != _ADULT:
                self._wrong("BaseByGuestAmt of a Rate is of adults: AgeQualifyingCode 10")
            if currency and one.get("CurrencyCode", currency) != currency:
                self._wrong("CurrencyCode of a Rate is another one than that of its plan")
        self._check_additional(list(listed(rate, "AdditionalGuestAmounts")))

    def _check_additional(self, amounts: list[_Element]) -> None:
        codes = [one.get("AgeQualifyingCode", "").strip() for one in amounts]
        if codes.count(_ADULT) > 1:
            self._wrong("an AdditionalGuestAmount of adults stands twice in one Rate")
        brackets: list[tuple[int, int]] = []
        for one, code in zip(amounts, codes, strict=True):
            youngest, oldest = (count(one.get(name, "0")) for name in ("MinAge", "MaxAge"))
            bounded = one.get("MinAge") is not None or one.get("MaxAge") is not None
            if one.get("Amount") is None or code not in (_ADULT, _CHILD):
                text = "Amount or AgeQualifyingCode (8, 10) of an AdditionalGuestAmount"
                self._missing(text)
            elif bounded is not (code == _CHILD):
                self._wrong("an AdditionalGuestAmount has ages if it is of children, else none")
            elif code == _CHILD:
                brackets.append((youngest or 0, oldest or _MAX_CHILD_AGE + 1))
        if any(oldest <= youngest for youngest, oldest in brackets):
            self._wrong("MinAge of an AdditionalGuestAmount is not less than MaxAge")
        elif any_overlap((youngest, oldest - 1) for youngest, oldest in brackets):
            self._wrong("two AdditionalGuestAmounts of one Rate are for the same age")

    def _check_supplement(self, one: _Element) -> None:
        only = one.find(tag("PrerequisiteInventory"))
        dated = one.get(START) is not None and one.get(END) is not None
        if dated and one.get("Amount") is None:
            self._missing("Amount of a Supplement with dates")
        if only is None:
            return
        kind, code = only.get("InvType"), only.get("InvCode", "")
        if (kind == "ROOMTYPE") is not dated:
            text = "a Supplement depends on the weekday in general, and on the room on some dates"
            self._wrong(text)
        elif kind == "ALPINEBITSDOW" and not _WEEK.fullmatch(code):
            self._wrong("InvCode of ALPINEBITSDOW is not seven times 0 or 1")

    # Offers:
    #   first ......... guests, dates and length of stay that the plan is for; never a discount
    #   free nights ... Discount with NightsRequired and NightsDiscounted, once
    #   family ........ Discount and Guests: some children for nothing, once

    def _check_offers(self, plan: _Element) -> None:
        kinds: list[str] = []
        for place, offer in enumerate(descendants(plan, "Offer")):
            rule, discount = descendant(offer, "OfferRule"), descendant(offer, "Discount")
            if place:
                kinds.append(self._check_discount(offer, discount))
                continue
            if discount is not None or descendant(offer, "Guests") is not None:
                self._wrong("the first Offer says for whom the plan is and is no discount")
            if rule is None:
                self._missing("OfferRule of the first Offer")
                continue
            self._check_lengths(rule)
            self._check_offsets(rule)
            self._check_occupancies(list(descendants(rule, "Occupancy")))
        if any(kinds.count(kind) > 1 for kind in ("family", "free nights")):
            self._wrong("two Offers are discounts of one kind")

    def _check_offsets(self, rule: _Element) -> None:
        least, most = (
            count(rule.get(f"{which}AdvancedBookingOffset", "").strip("PD"))
            for which in ("Min", "Max")
        )
        if least is not None and most is not None and least > most:
            self._wrong("MinAdvancedBookingOffset is greater than MaxAdvancedBookingOffset")

    def _check_occupancies(self, occupancies: list[_Element]) -> None:
        """Adults are required; children too, if the adults have a MinAge."""
        by_code = {one.get("AgeQualifyingCode"): one for one in occupancies}
        adults, children = by_code.get(_ADULT), by_code.get(_CHILD)
        if len(by_code) < len(occupancies):
            self._wrong("an AgeQualifyingCode stands twice among the Occupancy of an OfferRule")
        if adults is None:
            self._missing("Occupancy of adults (AgeQualifyingCode 10)")
            return
        if adults.get("MaxAge") is not None:
            self._wrong("Occupancy of adults has a MaxAge")
        for one in occupancies:
            least, most = _number(one, "MinOccupancy"), _number(one, "MaxOccupancy")
            if least is not None and most is not None and least > most:
                self._wrong("MinOccupancy is greater than MaxOccupancy")
        adult = _number(adults, "MinAge")
        if (children is None) is not (adult is None):
            self._add(MISSING, "MinAge of adults and Occupancy of children require each other")
            return
        if children is None or adult is None:
            return
        youngest, oldest = _number(children, "MinAge"), _number(children, "MaxAge")
        if adult > _MAX_ADULT_MIN_AGE:
            self._wrong(f"MinAge of adults is greater than {_MAX_ADULT_MIN_AGE}")
        if (
            (youngest or 0) >= adult
            or (oldest or 0) > adult
            or (oldest and (youngest or 0) >= oldest)
        ):
            self._wrong("the ages of children and adults are not in order")

    def _check_discount(self, offer: _Element, discount: _Element | None) -> str:
        """The kind of an Offer's discount: "family", "free nights", or "" if it is neither."""
        guest = descendant(offer, "Guest")
        if discount is None:
            self._missing("Discount of an Offer after the first one")
            return ""
        required, free = _number(discount, "NightsRequired"), _number(discount, "NightsDiscounted")
        pattern = discount.get("DiscountPattern")
        if required is None and free is None and pattern is None:
            if guest is None:
                self._add(MISSING, "Discount of an Offer says neither nights nor Guests")
                return ""
            self._check_family(guest)
            return "family"
        if required is None or free is None:
            self._missing("NightsRequired or NightsDiscounted")
        elif free > required:
            self._wrong("NightsDiscounted is greater than NightsRequired")
        elif pattern is not None and pattern != "0" * (required - free) + "1" * free:
            self._wrong("DiscountPattern is not what NightsRequired and NightsDiscounted say")
        return "free nights"

    def _check_family(self, guest: _Element) -> None:
        if guest.get("AgeQualifyingCode", "").strip() != _CHILD:
            self._wrong("Guest of a family offer is no child (AgeQualifyingCode 8)")
        needed, free = _number(guest, "MinCount"), _number(guest, "LastQualifyingPosition")
        if needed is not None and free is not None and free > needed:
            self._wrong("LastQualifyingPosition is greater than MinCount")

    def _missing(self, what: str) -> None:
        self._add(MISSING, f"{what} is missing")

    def _wrong(self, text: str) -> None:
        self._add(INVALID_VALUE, text)

    def _add(self, code: int, text: str) -> None:
        self._problems.add(code, f"RatePlan {self._at}: {text}")


def _number(element: _Element, name: str) -> int | None:
    value = element.get(name)
    return None if value is None else count(value)
