"""What a rate plan must not say of its prices, and of when it can be booked: rules that no schema
can say, as the AlpineBits Alliance's own test application for rate plans has them.

What is missing is borne where a plan still means something without it; what contradicts itself
would be a wrong price on somebody's page.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date
from typing import TYPE_CHECKING

from alpinehub.alpinebits.document import listed, tag
from alpinehub.alpinebits.outcome import INVALID_VALUE
from alpinehub.alpinebits.rules.inbound import INVALID_DATES, MISSING, Problems, count
from alpinehub.alpinebits.rules.subject import END, START, Subject, days_of, overlap, subject

if TYPE_CHECKING:
    from lxml.etree import _Element

_ADULT, _CHILD = "10", "8"
#: Nobody is a child for longer.
_MAX_AGE = 21
_WEEK = re.compile("[01]{7}")


class Pricing:
    """Checks the BookingRules, Rates and Supplements of one plan."""

    def __init__(self, problems: Problems, at: int) -> None:
        self._problems = problems
        self._at = at

    def check(self, plan: _Element) -> None:
        """All of them."""
        rules, rates, supplements = (
            list(listed(plan, name)) for name in ("BookingRules", "Rates", "Supplements")
        )
        for rule in rules:
            self._check_rule(rule)
        for place, rate in enumerate(rates):
            if rate.get(START) is None:
                self._check_static_rate(rate, place)
            else:
                self._check_rate(rate, plan.get("CurrencyCode"))
        for supplement in supplements:
            self._check_supplement(supplement)
        for name, told in (("BookingRule", rules), ("Rate", rates), ("Supplement", supplements)):
            self._check_together(name, told)
        static = [one.get("InvCode") for one in supplements if one.get(START) is None]
        if len(set(static)) < len(static):
            self._wrong("a Supplement without dates stands twice for one InvCode")

    def _check_together(self, name: str, told: Iterable[_Element]) -> None:
        periods: dict[Subject, list[tuple[date, date]]] = {}
        for one in told:
            first, last = days_of(one)
            if first is not None and last is not None:
                periods.setdefault(subject(one), []).append((first, last))
        if any(overlap(some) for some in periods.values()):
            self._say(INVALID_DATES, f"dates of one {name} overlap")

    def _check_rule(self, rule: _Element) -> None:
        if rule.get(START) is None:
            self._say(INVALID_DATES, "Start and End of a BookingRule are missing")
        if (rule.get("Code") is None) is not (rule.get("CodeContext") is None):
            self._say(MISSING, "Code or CodeContext of a BookingRule stands alone")
        self.check_lengths(rule)

    def check_lengths(self, rule: _Element) -> None:
        """LengthsOfStay: each kind once, and the least no more than the most."""
        told: dict[str, int] = {}
        for one in listed(rule, "LengthsOfStay"):
            kind, nights = one.get("MinMaxMessageType", ""), count(one.get("Time", ""))
            if kind in told:
                self._wrong(f"a LengthOfStay {kind} stands there twice")
            if nights is None:
                self._wrong("Time of a LengthOfStay is no number of nights")
            told[kind] = nights or 0
        for least, most in (("SetMinLOS", "SetMaxLOS"), ("SetForwardMinStay", "SetForwardMaxStay")):
            if least in told and most in told and told[least] > told[most]:
                self._wrong(f"{least} is greater than {most}")

    def _check_static_rate(self, rate: _Element, place: int) -> None:
        """What counts for all the others: it stands first, and says how they are meant."""
        if rate.get("InvTypeCode") is not None:
            self._say(INVALID_DATES, "Start and End of a Rate with InvTypeCode are missing")
            return
        if place:
            self._wrong("a Rate without dates is not the first one")
        if (rate.get("RateTimeUnit") is None) is not (rate.get("UnitMultiplier") is None):
            self._say(MISSING, "RateTimeUnit or UnitMultiplier of the first Rate stands alone")
        amounts = list(listed(rate, "BaseByGuestAmts"))
        if len(amounts) > 1 or any(one.get("Type") is None for one in amounts):
            self._wrong("the first Rate, without dates, has one BaseByGuestAmt, with its Type")

    def _check_rate(self, rate: _Element, currency: str | None) -> None:
        guests: set[int | None] = set()
        for one in listed(rate, "BaseByGuestAmts"):
            said = one.get("NumberOfGuests")
            if said is None or one.get("AmountAfterTax") is None:
                self._say(MISSING, "NumberOfGuests or AmountAfterTax of a Rate is missing")
                continue
            if count(said) in guests:
                self._wrong("a NumberOfGuests stands twice in one Rate")
            guests.add(count(said))
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
                text = "Amount or AgeQualifyingCode (8, 10) of an AdditionalGuestAmount is missing"
                self._say(MISSING, text)
            elif bounded is not (code == _CHILD):
                self._wrong("an AdditionalGuestAmount has ages if it is of children, else none")
            elif code == _CHILD:
                brackets.append((youngest or 0, oldest or _MAX_AGE + 1))
        if any(oldest <= youngest for youngest, oldest in brackets):
            self._wrong("MinAge of an AdditionalGuestAmount is not less than MaxAge")
        elif _share(brackets):
            self._wrong("two AdditionalGuestAmounts of one Rate are for the same age")

    def _check_supplement(self, one: _Element) -> None:
        only = one.find(tag("PrerequisiteInventory"))
        dated = one.get(START) is not None and one.get(END) is not None
        if dated and one.get("Amount") is None:
            self._say(MISSING, "Amount of a Supplement with dates is missing")
        if only is None:
            return
        kind, code = only.get("InvType"), only.get("InvCode", "")
        if (kind == "ROOMTYPE") is not dated:
            text = "a Supplement depends on the weekday in general, and on the room on some dates"
            self._wrong(text)
        elif kind == "ALPINEBITSDOW" and not _WEEK.fullmatch(code):
            self._wrong("InvCode of ALPINEBITSDOW is not seven times 0 or 1")

    def _wrong(self, text: str) -> None:
        self._say(INVALID_VALUE, text)

    def _say(self, code: int, text: str) -> None:
        self._problems.add(code, f"RatePlan {self._at}: {text}")


def _share(brackets: list[tuple[int, int]]) -> bool:
    """Whether some age is in two of them; the upper one is outside."""
    end = 0
    for youngest, oldest in sorted(brackets):
        if youngest < end:
            return True
        end = max(end, oldest)
    return False
