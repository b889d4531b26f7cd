"""RatePlans: what a stay costs, as hotel software pushes it.

New, Full ... the plan is this
Overlay ..... what is told of some days is laid over what is known of the plan (`overlay.py`)
Remove ...... there is no such plan any more
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Final, Literal, cast

from alpinehub.alpinebits.document import tag
from alpinehub.alpinebits.outcome import INVALID_VALUE
from alpinehub.alpinebits.reader import PUSH_BYTES, PUSH_MARKUP, Reader
from alpinehub.alpinebits.rules.inbound import (
    INVALID_DATES,
    MISSING,
    UNABLE,
    InboundMessage,
    Problems,
    day,
)
from alpinehub.alpinebits.rules.offers import check_offers
from alpinehub.alpinebits.rules.pricing import Pricing
from alpinehub.alpinebits.rules.texts import check_texts

if TYPE_CHECKING:
    from lxml.etree import _Element

RATES_RQ: Final = "OTA_HotelRatePlanNotifRQ"
_CURRENCY = re.compile(r"[A-Z]{3}")
_TYPE, _CODE = "RatePlanNotifType", "RatePlanCode"

Kind = Literal["New", "Full", "Overlay", "Remove"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One plan of a push."""

    code: str
    kind: Kind
    #: The RatePlan as canonical XML, without what is to be done with it.
    body: bytes
    #: The latest day on which something of it begins.
    latest: date | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RatePlansMessage(InboundMessage):
    """A push of rate plans."""

    #: There are no other plans than these.
    complete: bool = False
    plans: tuple[Plan, ...] = ()


def _read(root: _Element) -> RatePlansMessage:
    plans = root[-1]
    complete = root.find(tag("UniqueID")) is not None
    problems = Problems()
    told: list[Plan] = []
    if not _is_reset(plans):
        told = [_read_plan(one, at, problems) for at, one in enumerate(plans, start=1)]
        codes = [one.code for one in told if one.code]
        if len(set(codes)) < len(codes):
            problems.add(INVALID_VALUE, "a RatePlanCode stands there twice")
        if complete and any(one.kind in ("Overlay", "Remove") for one in told):
            problems.add(
                UNABLE, "a complete set holds whole plans only: neither Overlay nor Remove"
            )
    elif not complete:
        problems.add(UNABLE, "a single empty RatePlan deletes all, which needs a complete set")
    return RatePlansMessage(
        hotel_code=plans.get("HotelCode"),
        hotel_name=plans.get("HotelName"),
        findings=tuple(problems.findings),
        uses=frozenset({"rateplans"}),
        complete=complete,
        plans=() if problems else tuple(told),
        room_types=frozenset() if problems else _room_types(plans),
    )


def _room_types(plans: _Element) -> frozenset[str]:
    rates = plans.iter(tag("Rate"))
    return frozenset(code for one in rates if (code := one.get("InvTypeCode")) is not None)


def _is_reset(plans: _Element) -> bool:
    return len(plans) == 1 and not len(plans[0]) and not plans[0].attrib


def _read_plan(plan: _Element, at: int, problems: Problems) -> Plan:
    from lxml import etree

    kind, code = plan.get(_TYPE), plan.get(_CODE)
    plan.attrib.pop(_TYPE, "")
    for name, value in ((_TYPE, kind), (_CODE, code)):
        if value is None:
            problems.add(MISSING, f"RatePlan {at}: {name} is missing")
    currency = plan.get("CurrencyCode")
    if currency is None and kind in ("New", "Full"):
        problems.add(MISSING, f"RatePlan {at}: CurrencyCode is missing")
    if currency is not None and not _CURRENCY.fullmatch(currency):
        problems.add(INVALID_VALUE, f"RatePlan {at}: CurrencyCode is none of ISO 4217")
    latest = _check_dates(plan, at, problems)
    for rate in plan.iter(tag("Rate")):
        if rate.get("Start") is not None and rate.get("InvTypeCode") is None:
            problems.add(MISSING, f"RatePlan {at}: InvTypeCode of a Rate with dates is missing")
    _check_kind(plan, at, problems)
    Pricing(problems, at).check(plan)
    check_offers(plan, at, problems)
    check_texts(plan, problems)
    body = etree.tostring(plan, method="c14n", exclusive=True, with_tail=False)
    return Plan(code=code or "", kind=cast(Kind, kind), body=body, latest=latest)


def _check_kind(plan: _Element, at: int, problems: Problems) -> None:
    """A promotion of a third party is one, and each text stands there once."""
    if plan.get("RatePlanCategory") is not None and plan.get("RatePlanType") is None:
        problems.add(MISSING, f"RatePlan {at}: RatePlanCategory without RatePlanType")
    names = [one.get("Name") for one in plan.findall(tag("Description"))]
    if len(set(names)) < len(names):
        problems.add(INVALID_VALUE, f"RatePlan {at}: a Description stands there twice")


def _check_dates(plan: _Element, at: int, problems: Problems) -> date | None:
    """The latest day on which something begins."""
    latest: date | None = None
    for one in plan.iter():
        start, end = one.get("Start"), one.get("End")
        if start is None and end is None:
            continue
        if start is None or end is None:
            problems.add(INVALID_DATES, f"RatePlan {at}: Start or End stands alone")
            continue
        first, last = day(start), day(end)
        if first is None or last is None or last < first:
            problems.add(INVALID_DATES, f"RatePlan {at}: invalid combination of Start and End")
            continue
        latest = max(first, latest or first)
    return latest


RATES = Reader(
    root=RATES_RQ,
    read=_read,
    type=RatePlansMessage,
    pooled=True,
    max_bytes=PUSH_BYTES,
    max_markup=PUSH_MARKUP,
)
