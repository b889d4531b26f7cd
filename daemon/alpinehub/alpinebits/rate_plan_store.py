"""The rate plans of a hotel, one row for each.

As with documents (document_store.py), an overlay is computed outside any transaction and written if
the plan is still the one that was read.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Mapping
from datetime import date
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from alpinehub.alpinebits.document_store import TRIES, too_many_at_once
from alpinehub.alpinebits.outcome import Outcome, failed
from alpinehub.alpinebits.rules.inbound import FAR, TOO_FAR, UNABLE
from cordata import from_us

if TYPE_CHECKING:
    from alpinehub.alpinebits.inbound import Update
    from alpinehub.alpinebits.rules.rate_plans import RatePlansMessage
    from cordata import Tx

SEND_RATEPLANS = "ALPINEBITS_SEND_RATEPLANS"
#: Of one hotel: plans, and bytes of them as they are kept, packed.
MAX_PLANS, MAX_BYTES = 500, 16 * 1024 * 1024

#: By code: when it was last changed, and the plan, packed.
_Known = Mapping[str, tuple[int, bytes]]


class _Outdated(Exception):
    """Somebody else was first."""


class _TooMuch(Exception):
    """The hotel would have more than we keep; the text says of what."""


async def read_plans(tx: Tx, hotel_id: int) -> dict[str, bytes]:
    """All plans of a hotel by their codes, packed: unpacked together they may be gigabytes."""
    return {code: body for code, (_, body) in (await _read(tx, hotel_id)).items()}


def unpack(plan: bytes) -> bytes:
    """A plan as canonical XML."""
    return zlib.decompress(plan)


async def store_plans(update: Update, told: RatePlansMessage) -> Outcome:
    """Store what an update makes of the plans, and that it came.

    Raises: StoreUnavailable; TransportError (503) when others were first again and again.
    """
    store = update.call.ctx.store
    for _ in range(TRIES):
        known: _Known = {}
        if any(one.kind == "Overlay" for one in told.plans):
            known = await store.read(partial(_read, hotel_id=update.hotel.id))
        last = from_us(update.call.ctx.now_us()).date() + FAR
        made, problem = await asyncio.to_thread(_make, told, known, last)
        try:
            await store.run(partial(_write, update=update, told=told, made=made, outcome=problem))
        except _Outdated:
            continue
        except _TooMuch as error:
            problem = failed(UNABLE, str(error))
            await store.run(partial(update.record, outcome=problem))
        return problem
    raise too_many_at_once()


def _make(
    told: RatePlansMessage, known: _Known, last: date
) -> tuple[dict[str, tuple[int, bytes]], Outcome]:
    """By code: when the plan below an overlay was changed (0: it is no overlay), and the plan."""
    from alpinehub.alpinebits.rules.overlay import TooLarge, between, laid_over

    far = [one for one in told.plans if one.latest is not None and one.latest > last]
    near = {one.code: between(one.body, None, last) for one in far}
    made: dict[str, tuple[int, bytes]] = {}
    for one in told.plans:
        body = near.get(one.code, one.body)
        if one.kind in ("New", "Full"):
            made[one.code] = (0, zlib.compress(body))
        elif one.kind == "Overlay":
            if one.code not in known:
                text = "an Overlay needs a rate plan that is known; send the whole plan"
                return {}, failed(UNABLE, text, status=SEND_RATEPLANS)
            seen, before = known[one.code]
            try:
                made[one.code] = (seen, zlib.compress(laid_over(unpack(before), body)))
            except TooLarge:
                text = "with this Overlay the rate plan is too large; send the whole plan"
                return {}, failed(UNABLE, text, status=SEND_RATEPLANS)
    return made, Outcome((TOO_FAR,) if far else ())


async def _read(tx: Tx, hotel_id: int) -> dict[str, tuple[int, bytes]]:
    rows = await tx.fetch_all("rateplan_all", hotel_id=hotel_id)
    return {row["code"]: (row["changed_at"], row["body"]) for row in rows}


async def _write(
    tx: Tx,
    update: Update,
    told: RatePlansMessage,
    made: Mapping[str, tuple[int, bytes]],
    outcome: Outcome,
) -> None:
    who = {"hotel_id": update.hotel.id, "protocol": update.call.protocol.name, "now_us": tx.now_us}
    if outcome.kind != "error":
        await tx.fetch_one("rateplan_hold", hotel_id=update.hotel.id)
        gone = [one.code for one in told.plans if one.kind == "Remove"]
        if gone:
            codes = msgspec.json.encode(gone).decode()
            await tx.execute("rateplan_remove", hotel_id=update.hotel.id, codes=codes)
        if told.complete:
            codes = msgspec.json.encode(list(made)).decode()
            await tx.execute("rateplan_remove_others", hotel_id=update.hotel.id, codes=codes)
        for code, (seen, body) in sorted(made.items()):
            if not seen:
                await tx.write("rateplan_set", code=code, body=body, **who)
            elif not await tx.execute("rateplan_overlay", code=code, body=body, seen=seen, **who):
                raise _Outdated
        row = await tx.fetch_one("rateplan_count", hotel_id=update.hotel.id)
        if row is not None and row["plans"] > MAX_PLANS:
            raise _TooMuch(f"a hotel has at most {MAX_PLANS} rate plans here")
        if row is not None and row["bytes"] > MAX_BYTES:
            raise _TooMuch("the rate plans of this hotel are too large all together")
    await update.record(tx, outcome)
