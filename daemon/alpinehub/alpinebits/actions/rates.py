"""RatePlans and BaseRates: hotel software tells what a stay costs, and asks what we know of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from alpinehub.alpinebits.bounds import MAX_BODY_BYTES
from alpinehub.alpinebits.call import Answer, Call, read, respond
from alpinehub.alpinebits.document import tag
from alpinehub.alpinebits.inbound import admit
from alpinehub.alpinebits.outcome import INVALID_HOTEL_CODE, INVALID_VALUE, Outcome, failed
from alpinehub.alpinebits.protocol import RATE_PLANS, Protocol
from alpinehub.alpinebits.rate_plan_store import SEND_RATEPLANS, read_plans, store_plans, unpack
from alpinehub.alpinebits.reader import Reader
from alpinehub.alpinebits.rules.inbound import INVALID_DATES, UNABLE, InboundMessage, Problems, day
from alpinehub.alpinebits.rules.rate_plans import RATES
from alpinehub.alpinebits.serving import serve

if TYPE_CHECKING:
    from lxml.etree import _Element

_ANSWER = "OTA_HotelRatePlanRS"
#: Of one answer: as much as a push may tell.
MAX_ANSWER_BYTES = MAX_BODY_BYTES


async def take_rates(call: Call) -> Answer:
    """OTA_HotelRatePlanNotif:RatePlans."""
    message = await read(call, RATES)
    update = await admit(call, RATE_PLANS, "OTA_HotelRatePlanNotifRS", message)
    if isinstance(update, bytes):
        return update
    return update.respond(await store_plans(update, message))


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseRatesRequest(InboundMessage):
    """OTA_HotelRatePlanRQ: which plans, and of which days."""

    #: (RatePlanCode, RatePlanID); empty: all plans.
    candidates: tuple[tuple[str | None, str | None], ...] = ()
    #: (Start, End) as written; None: no days were named.
    days: tuple[str | None, str | None] | None = None

    @property
    def deltas(self) -> bool:
        """Whether only what has changed since the last time is wanted."""
        return self.days == (None, None)


def _read(root: _Element) -> BaseRatesRequest:
    plan = root[0][0]
    hotels = plan.findall(tag("HotelRef"))
    ranges = plan.findall(tag("DateRange"))
    problems = Problems()
    if len(hotels) != 1:
        problems.add(INVALID_VALUE, "exactly one HotelRef must be there")
    if len(ranges) > 1:
        problems.add(INVALID_VALUE, "more than one DateRange is there")
    days = (ranges[0].get("Start"), ranges[0].get("End")) if ranges else None
    first, last = (day(one) if one is not None else None for one in days or (None, None))
    if first is not None and last is not None and last < first:
        problems.add(INVALID_DATES, "invalid combination of Start and End")
    return BaseRatesRequest(
        hotel_code=hotels[0].get("HotelCode") if hotels else None,
        hotel_name=hotels[0].get("HotelName") if hotels else None,
        findings=tuple(problems.findings),
        uses=frozenset({"baserates"}),
        candidates=tuple(
            (one.get("RatePlanCode"), one.get("RatePlanID"))
            for one in plan.iter(tag("RatePlanCandidate"))
        ),
        days=days,
    )


BASE_RATES_REQUEST = Reader(root="OTA_HotelRatePlanRQ", read=_read, type=BaseRatesRequest)


async def tell_rates(call: Call) -> Answer:
    """OTA_HotelRatePlan:BaseRates."""
    wanted = await read(call, BASE_RATES_REQUEST)
    hotel = call.account.hotel(wanted.hotel_code, wanted.hotel_name)
    if wanted.findings:
        return respond(call, _ANSWER, Outcome(wanted.findings))
    if hotel is None:
        return respond(call, _ANSWER, failed(INVALID_HOTEL_CODE, "Invalid hotel code"))
    if refused := wanted.disabled_features(hotel):
        return respond(call, _ANSWER, Outcome(refused))
    if wanted.deltas:  # before 2022-10 it could be no warning, and later not without a plan
        text = "this server does not support deltas of base rates: name days, or leave DateRange"
        return respond(call, _ANSWER, failed(UNABLE, text))
    known = await call.ctx.store.read(partial(read_plans, hotel_id=hotel.id))
    if not known:
        text = "no rate plan of this hotel has been received yet"
        return respond(call, _ANSWER, failed(UNABLE, text, status=SEND_RATEPLANS))
    plans = await asyncio.to_thread(choose, known, wanted, call.protocol)
    if plans is None:
        text = "these are more rates than fit into an answer: name fewer days or plans"
        return respond(call, _ANSWER, failed(UNABLE, text))
    if not plans:
        return respond(call, _ANSWER, failed(UNABLE, "no rate plan is what was asked for"))
    return await serve(call, hotel, _ANSWER, b"<RatePlans>%b</RatePlans>" % b"".join(plans))


def choose(
    known: Mapping[str, bytes], wanted: BaseRatesRequest, protocol: Protocol
) -> list[bytes] | None:
    """What is wanted of what is known, as far as a version can say it; None: it is too much."""
    from alpinehub.alpinebits.rules.overlay import attributes, between, titled

    told: list[bytes] = []
    for code, packed in sorted(known.items()):
        if sum(map(len, told)) > MAX_ANSWER_BYTES:
            return None
        plan = unpack(packed)
        about = attributes(plan)
        currency = about.get("CurrencyCode")
        if protocol.currencies is not None and currency not in protocol.currencies:
            continue  # it could not say in which currency the amounts are
        if wanted.candidates and not _is_candidate(code, about.get("RatePlanID"), wanted):
            continue
        if wanted.days is not None:
            first, last = (day(one) if one is not None else None for one in wanted.days)
            told.append(between(plan, first, last))
        else:
            told.append(plan if wanted.candidates else titled(plan))
    return told if sum(map(len, told)) <= MAX_ANSWER_BYTES else None


def _is_candidate(code: str, master: str | None, wanted: BaseRatesRequest) -> bool:
    """A code means one plan; without it, an id means all plans of one master."""
    return any(
        wanted_code == code
        if wanted_code is not None
        else (master is not None and wanted_id == master)
        for wanted_code, wanted_id in wanted.candidates
    )
