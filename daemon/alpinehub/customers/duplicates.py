"""Duplicates: the primary reads the telephone numbers of customers and merges those who are one.

    phone_due --E.164--> shared with a customer without an e-mail address?
                           yes: merged, the other row goes      no: not due any more

    one of them has an address ....... the others are merged into that one
    none has ......................... the others are merged into the oldest
    several have ..................... none is merged: people share telephones, and which of them
                                       gave only the number is not known

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
from alpinehub.sql import encode_list
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
    """Process the next customers that are due, in one unit; their ids."""

    async def due(tx: Tx) -> list[Row]:
        return await tx.fetch_all("customer_due", after=after, limit=limit)

    rows = await store.read(due)
    if not rows:
        return ()
    written = {_written(row) for row in rows if row["phone"]}
    numbers = await asyncio.to_thread(_read_numbers, written)
    found = [(row, numbers.get(_written(row))) for row in rows]
    try:
        await store.run(partial(_process, found=found))
    except Conflict:
        pass  # a request came for a customer who was to be merged: all of it is done again
    return [int(row["id"]) for row in rows]


def _written(customer: Mapping[str, Any] | Row) -> Written:
    return customer["phone"], customer["region"], customer["country"]


def _read_numbers(written: Iterable[Written]) -> Numbers:
    return {one: e164(*one) for one in written}


async def _process(tx: Tx, found: Sequence[tuple[Row, str | None]]) -> None:
    """`found`: customers that were due, and their numbers."""
    made = [(c["id"], number, c["phone"], c["country"], c["region"]) for c, number in found]
    await tx.write("customer_set_numbers", numbers=encode_list(made))
    await _merge_shared(tx, {(one["hotel_id"], number) for one, number in found if number})


async def _merge_shared(tx: Tx, numbers: Collection[tuple[int, str]]) -> None:
    """Merge those who share a (hotel, number). Who absorbs others is due again."""
    if not numbers:
        return
    for group in await tx.fetch_all("customer_shared", numbers=encode_list(sorted(numbers))):
        number = {"hotel_id": group["hotel_id"], "phone_e164": group["phone_e164"]}
        found = await tx.fetch_all("customer_nameless", **number, owner=group["owner"])
        customers = [dict(row) for row in found]
        if group["owners"] > 1:
            customers = [one for one in customers if one["email"] is None]
        customers.sort(key=lambda one: (one["email"] is None, one["id"]))
        if len(customers) > 1:
            await _merge(tx, customers[0], customers[1:])


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
