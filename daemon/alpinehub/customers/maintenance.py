"""What the primary does for customers that are due: their number, who is one person, their hashes.

    due ──number──> shared with one who has no e-mail address? ──yes──> one of them; the other goes
                      │ no
                      └──consent?──yes──> hashes by RULE ──> not due
                            └──no───────> no hashes ───────> not due

A customer is due when he is new, when he says something new of himself, when the region of his
hotel or the rule changes (the backfill of app.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from alpinehub.customers.hashing import PLATFORMS, RULE, hashes
from alpinehub.customers.merge import encode_list, merge_shared
from alpinehub.customers.phone import e164
from alpinehub.hotels import require_hotel
from cordata import Conflict, Row, Store, Tx

#: Customers of one unit: some milliseconds of the write lock.
STEP = 200

#: A number as written, the hotel's region and the guest's country.
Written = tuple[str, str, str | None]
#: With their country code; None: it is no number.
Numbers = Mapping[Written, str | None]


async def keep_up(store: Store, *, step: int = STEP) -> int:
    """Settle all who are due; how many were looked at."""
    done, after, rows = 0, 0, step
    while rows == step:  # fewer were the last: while new ones come it would not end
        ids = await settle(store, after, step)
        rows = len(ids)
        done += rows
        after = ids[-1] if ids else after
    return done


async def rehash(store: Store, cursor: str | None, step: int) -> str | None:
    """A step of the backfill: settle the next `step` customers, due or not. The next cursor."""
    after = int(cursor or 0)

    async def unit(tx: Tx) -> int | None:
        row = await tx.fetch_one("customer_range", after=after, limit=step)
        if row is None or row["last"] is None:
            return None
        await tx.execute("customer_mark_range", after=after, last=row["last"])
        return int(row["last"])

    last = await store.run(unit)
    if last is None:
        return None
    while after < last and (rows := await settle(store, after, step)):
        after = rows[-1]
    return str(last)


async def mark_hotel(store: Store, code: str) -> int:
    """Have all customers of a hotel looked at again: how many. Raises: Unusable."""

    async def unit(tx: Tx) -> int:
        return await tx.execute("customer_mark_hotel", hotel_id=await require_hotel(tx, code))

    return await store.run(unit)


async def settle(store: Store, after: int, limit: int) -> Sequence[int]:
    """Settle the next who are due, in one unit; their ids.

    Who is in somebody's hands, or was changed while his number was looked at, stays due.
    """

    async def due(tx: Tx) -> list[Row]:
        return await tx.fetch_all("customer_due", after=after, limit=limit)

    rows = await store.read(due)
    if not rows:
        return ()
    written = {_written(row) for row in rows if row["phone"]}
    numbers = await asyncio.to_thread(_read_numbers, written)
    ids = [int(row["id"]) for row in rows]
    try:
        await store.run(partial(_settle, ids=ids, numbers=numbers))
    except Conflict:
        pass  # a request for one who was to go: all of it is done again
    return ids


def _written(person: Mapping[str, Any] | Row) -> Written:
    return person["phone"], person["region"], person["country"]


def _read_numbers(written: Iterable[Written]) -> Numbers:
    return {one: e164(*one) for one in written}


async def _settle(tx: Tx, ids: Sequence[int], numbers: Numbers) -> None:
    held = [dict(row) for row in await tx.fetch_all("customer_hold", ids=encode_list(ids))]
    people = [p for p in held if not p["phone"] or _written(p) in numbers]
    changed = []
    for person in people:
        number = numbers.get(_written(person))
        if number != person["phone_e164"]:
            person["phone_e164"] = number
            changed.append({"id": person["id"], "phone_e164": number})
    if changed:
        await tx.execute_many("customer_number", changed)
    touched = await merge_shared(
        tx, {(p["hotel_id"], p["phone_e164"]) for p in people if p["phone_e164"]}
    )
    people = [p for p in people if p["id"] not in touched]
    if not people:
        return
    await tx.execute("customer_forget_hashes", ids=encode_list(p["id"] for p in people))
    if told := [_row(p, platform) for p in people if p["consent"] for platform in PLATFORMS]:
        await tx.execute_many("customer_put_hash", [{**row, "now": tx.now_us} for row in told])
    await tx.execute("customer_settled", ids=encode_list(p["id"] for p in people))


def _row(person: Mapping[str, Any], platform: str) -> dict[str, object]:
    """The hashes of one platform, as a row."""
    told = {**person, "phone": person["phone_e164"]}
    return {
        "customer_id": person["id"],
        "platform": platform,
        "rule": RULE,
        **hashes(told, platform),
    }
