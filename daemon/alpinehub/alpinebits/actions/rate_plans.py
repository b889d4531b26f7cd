"""RatePlans and BaseRates: hotel software pushes its prices, and pulls the stored ones.

Each rate plan of a hotel is a row. As with documents (inbound.py), an overlay is computed outside
any transaction and written if the plan has not changed since it was read.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import TYPE_CHECKING

from alpinehub.alpinebits.call import Call, ResponseBody, read
from alpinehub.alpinebits.document import MAX_BODY_BYTES, tag
from alpinehub.alpinebits.inbound import TRIES, Update, lost_every_race, receive
from alpinehub.alpinebits.outcome import (
    INVALID_DATES,
    INVALID_VALUE,
    UNABLE,
    MessageRejected,
    Outcome,
    error,
)
from alpinehub.alpinebits.protocol import Protocol
from alpinehub.alpinebits.pull import respond_with
from alpinehub.alpinebits.reader import Reader
from alpinehub.alpinebits.rules.inbound_message import (
    FAR,
    TOO_FAR,
    InboundMessage,
    Problems,
    day,
)
from alpinehub.alpinebits.rules.rate_plans import RATES, RatePlansMessage
from alpinehub.sql import encode_list
from cordata import Tx, from_us

if TYPE_CHECKING:
    from lxml.etree import _Element

_SEND_RATEPLANS = "ALPINEBITS_SEND_RATEPLANS"
#: Most plans of one hotel, and most bytes of them, compressed.
MAX_PLANS, MAX_BYTES = 500, 16 * 1024 * 1024
#: Largest response: as large as a push may be.
MAX_RESPONSE_BYTES = MAX_BODY_BYTES

#: By code: when the plan was last changed, and the plan, compressed: all plans of a hotel may take
#: gigabytes when they are decompressed.
Plans = Mapping[str, tuple[int, bytes]]


async def receive_rate_plans(call: Call) -> ResponseBody:
    """OTA_HotelRatePlanNotif:RatePlans."""
    message = await read(call, RATES)
    return await receive(call, message, partial(_store, message=message))


class _Outdated(Exception):
    """Another update changed a plan first."""


async def _store(update: Update, message: RatePlansMessage) -> Outcome:
    """Apply a message to the stored plans, and record it.

    Raises: MessageRejected; StoreUnavailable; TransportError (503) after TRIES concurrent updates.
    """
    store = update.call.ctx.store
    for _ in range(TRIES):
        known: Plans = {}
        if any(one.kind == "Overlay" for one in message.plans):
            known = await store.read(partial(read_plans, hotel_id=update.hotel.id))
        last = from_us(update.call.ctx.now_us()).date() + FAR
        made, outcome = await asyncio.to_thread(_make, message, known, last)
        try:
            await store.run(
                partial(_write, update=update, message=message, made=made, outcome=outcome)
            )
        except _Outdated:
            continue
        return outcome
    raise lost_every_race()


def _make(
    message: RatePlansMessage, known: Plans, last: date
) -> tuple[dict[str, tuple[int, bytes]], Outcome]:
    """The new plans, compressed, by code, each with the `changed_at` of the stored plan that an
    overlay was computed from (0: it is not an overlay). Raises: MessageRejected.
    """
    from alpinehub.alpinebits.rules.overlay import TooLarge, apply_overlay, select_days

    far = [one for one in message.plans if one.latest is not None and one.latest > last]
    near = {one.code: select_days(one.body, None, last) for one in far}
    made: dict[str, tuple[int, bytes]] = {}
    for one in message.plans:
        body = near.get(one.code, one.body)
        if one.kind in ("New", "Full"):
            made[one.code] = (0, zlib.compress(body))
        elif one.kind == "Overlay":
            if one.code not in known:
                text = "an Overlay needs a rate plan that is known; send the whole plan"
                raise MessageRejected(error(UNABLE, text, status=_SEND_RATEPLANS))
            seen, before = known[one.code]
            try:
                made[one.code] = (seen, zlib.compress(apply_overlay(zlib.decompress(before), body)))
            except TooLarge:
                text = "with this Overlay the rate plan is too large; send the whole plan"
                raise MessageRejected(error(UNABLE, text, status=_SEND_RATEPLANS)) from None
    return made, Outcome((TOO_FAR,) if far else ())


async def _write(
    tx: Tx,
    update: Update,
    message: RatePlansMessage,
    made: Mapping[str, tuple[int, bytes]],
    outcome: Outcome,
) -> None:
    who = {"hotel_id": update.hotel.id, "protocol": update.call.protocol.name, "now_us": tx.now_us}
    await tx.fetch_one("rateplan_lock", hotel_id=update.hotel.id)
    gone = [one.code for one in message.plans if one.kind == "Remove"]
    if gone:
        codes = encode_list(gone)
        await tx.execute("rateplan_remove", hotel_id=update.hotel.id, codes=codes)
    if message.complete:
        codes = encode_list(made)
        await tx.execute("rateplan_remove_others", hotel_id=update.hotel.id, codes=codes)
    for code, (seen, body) in sorted(made.items()):
        if not seen:
            await tx.write("rateplan_set", code=code, body=body, **who)
        elif not await tx.execute("rateplan_overlay", code=code, body=body, seen=seen, **who):
            raise _Outdated
    [row] = await tx.fetch_all("rateplan_count", hotel_id=update.hotel.id)
    if row["plans"] > MAX_PLANS:
        text = f"a hotel has at most {MAX_PLANS} rate plans here"
        raise MessageRejected(error(UNABLE, text))
    if row["bytes"] > MAX_BYTES:
        text = "the rate plans of this hotel are too large all together"
        raise MessageRejected(error(UNABLE, text))
    await update.record(tx, outcome)


async def read_plans(tx: Tx, hotel_id: int) -> Plans:
    """All plans of a hotel."""
    rows = await tx.fetch_all("rateplan_all", hotel_id=hotel_id)
    return {row["code"]: (row["changed_at"], row["body"]) for row in rows}


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseRatesRequest(InboundMessage):
    """OTA_HotelRatePlanRQ: which plans are requested, and for which days."""

    #: (RatePlanCode, RatePlanID); empty: all plans.
    candidates: tuple[tuple[str | None, str | None], ...] = ()
    #: (Start, End) as written; None: no days were named.
    days: tuple[str | None, str | None] | None = None

    @property
    def deltas(self) -> bool:
        """Whether only changes since the last request are requested."""
        return self.days == (None, None)


def _read_request(root: _Element) -> BaseRatesRequest:
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


BASE_RATES_REQUEST = Reader(root="OTA_HotelRatePlanRQ", read=_read_request)


async def send_base_rates(call: Call) -> ResponseBody:
    """OTA_HotelRatePlan:BaseRates."""
    wanted = await read(call, BASE_RATES_REQUEST)
    if wanted.findings:
        raise MessageRejected(*wanted.findings)
    hotel = call.require_hotel(wanted)
    wanted.require_features(hotel)
    if wanted.deltas:  # an error, as a warning needs 2022-10, and a plan beside it
        text = "this server does not support deltas of base rates: name days, or leave DateRange"
        raise MessageRejected(error(UNABLE, text))
    known = await call.ctx.store.read(partial(read_plans, hotel_id=hotel.id))
    if not known:
        text = "no rate plan of this hotel has been received yet"
        raise MessageRejected(error(UNABLE, text, status=_SEND_RATEPLANS))
    plans = await asyncio.to_thread(_select, known, wanted, call.protocol)
    if plans is None:
        text = "these are more rates than fit into an answer: name fewer days or plans"
        raise MessageRejected(error(UNABLE, text))
    if not plans:
        raise MessageRejected(error(UNABLE, "no rate plan is what was asked for"))
    content = b"<RatePlans>%b</RatePlans>" % b"".join(plans)
    return await respond_with(call, hotel, content)


def _select(known: Plans, wanted: BaseRatesRequest, protocol: Protocol) -> list[bytes] | None:
    """The requested plans that a version can carry; None: they exceed MAX_RESPONSE_BYTES."""
    from alpinehub.alpinebits.rules.overlay import attributes, select_days, title_only

    selected: list[bytes] = []
    for code, (_, packed) in sorted(known.items()):
        if sum(map(len, selected)) > MAX_RESPONSE_BYTES:
            return None
        plan = zlib.decompress(packed)
        about = attributes(plan)
        currency = about.get("CurrencyCode")
        if protocol.currencies is not None and currency not in protocol.currencies:
            continue  # this version cannot express the currency of the amounts
        if wanted.candidates and not _is_candidate(code, about.get("RatePlanID"), wanted):
            continue
        if wanted.days is not None:
            first, last = (day(one) if one is not None else None for one in wanted.days)
            selected.append(select_days(plan, first, last))
        else:
            selected.append(plan if wanted.candidates else title_only(plan))
    return selected if sum(map(len, selected)) <= MAX_RESPONSE_BYTES else None


def _is_candidate(code: str, master: str | None, wanted: BaseRatesRequest) -> bool:
    """Whether a plan is requested, by its code, or without a code by the id of its master."""
    return any(
        wanted_code == code
        if wanted_code is not None
        else (master is not None and wanted_id == master)
        for wanted_code, wanted_id in wanted.candidates
    )
