"""Duplicates: the primary reads the telephone numbers of customers and merges those who are one.

    phone_due --E.164--> shared with a customer without an e-mail address?
                           yes: merged, the other row goes      no: not due any more

    one of them has an address ....... the others are merged into that one
    none has ......................... the others are merged into the oldest
    several have ..................... they stay: a telephone is shared more often than a mailbox,
                                       and whoever gave the number alone may be any of them

A customer is due when they are new and gave a number, when their number or country changes, and
when the region of their hotel changes. Where a request is stored for a customer who is just merged,
the foreign key fails one of the two units, which runs again: no request is lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from alpinehub.customers.identity import GROUPS
from alpinehub.customers.phone import e164
from alpinehub.customers.search import encode_list
from cordata import Conflict, Row, Store, Tx

#: Customers of one unit: some milliseconds of the write lock.
STEP = 200

#: A number as written, the hotel's region and the guest's country.
Written = tuple[str, str, str | None]
#: With their country code; None: it is no number.
Numbers = Mapping[Written, str | None]

_log = logging.getLogger("alpinehub.customers")


async def merge_duplicates(store: Store, *, step: int = STEP) -> int:
    """Process all customers that are due; how many were looked at."""
    done, after, rows = 0, 0, step
    while rows == step:  # a step that is not full was the last: new ones may keep coming
        ids = await process_step(store, after, step)
        rows = len(ids)
        done += rows
        after = ids[-1] if ids else after
    return done


async def process_step(store: Store, after: int, limit: int) -> Sequence[int]:
    """Process the next customers that are due, in one unit; their ids.

    One whose row is locked, or changed while the number was read, stays due.
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
        await store.run(partial(_process, ids=ids, numbers=numbers))
    except Conflict:
        pass  # a request came for a customer who was to be merged: all of it is done again
    return ids


def _written(customer: Mapping[str, Any] | Row) -> Written:
    return customer["phone"], customer["region"], customer["country"]


def _read_numbers(written: Iterable[Written]) -> Numbers:
    return {one: e164(*one) for one in written}


async def _process(tx: Tx, ids: Sequence[int], numbers: Numbers) -> None:
    locked = [dict(row) for row in await tx.fetch_all("customer_lock_due", ids=encode_list(ids))]
    customers = [one for one in locked if not one["phone"] or _written(one) in numbers]
    changed = []
    for one in customers:
        number = numbers.get(_written(one))
        if number != one["phone_e164"]:
            one["phone_e164"] = number
            changed.append({"id": one["id"], "phone_e164": number})
    if changed:
        await tx.execute_many("customer_set_number", changed)
    shared = {(one["hotel_id"], one["phone_e164"]) for one in customers if one["phone_e164"]}
    merged = await _merge_shared(tx, shared)
    if left := [one["id"] for one in customers if one["id"] not in merged]:
        await tx.execute("customer_not_due", ids=encode_list(left))


async def _merge_shared(tx: Tx, numbers: Collection[tuple[int, str]]) -> set[int]:
    """Merge those who share a (hotel, number); ids of all whose row changed or went."""
    if not numbers:
        return set()
    touched: set[int] = set()
    for group in await tx.fetch_all("customer_shared", numbers=encode_list(sorted(numbers))):
        number = {"hotel_id": group["hotel_id"], "phone_e164": group["phone_e164"]}
        found = await tx.fetch_all("customer_nameless", **number, owner=group["owner"])
        customers = [dict(row) for row in found]
        if group["owners"] > 1:
            customers = [one for one in customers if one["email"] is None]
        customers.sort(key=lambda one: (one["email"] is None, one["id"]))
        if len(customers) > 1:
            await _merge(tx, customers[0], customers[1:])
            touched |= {int(one["id"]) for one in customers}
    return touched


async def _merge(tx: Tx, one: dict[str, Any], others: list[dict[str, Any]]) -> None:
    ids = encode_list(other["id"] for other in others)
    await tx.execute("customer_move_requests", id=one["id"], ids=ids)
    await tx.execute("customer_delete", ids=ids)
    # The latest answer counts; of two at one moment the no.
    latest = max((one, *others), key=lambda c: (c["consent_at"] or 0, c["consent"] == 0))
    await tx.execute(
        "customer_absorb",
        id=one["id"],
        **_known((one, *others)),
        consent=latest["consent"],
        consent_at=latest["consent_at"],
    )
    _log.info("customers %s are merged into customer %d", ids, one["id"])


def _known(customers: Sequence[dict[str, Any]]) -> dict[str, object]:
    """What is known of them together: each group of columns from the first who gave it."""
    known: dict[str, object] = {}
    for group in GROUPS:
        tellers = (one for one in customers if any(one[name] is not None for name in group))
        teller = next(tellers, customers[0])
        known |= {name: teller[name] for name in group}
    return known
