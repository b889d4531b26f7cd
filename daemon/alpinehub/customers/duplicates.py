"""Duplicates: the primary merges customers who gave one telephone number, written differently.

    due --numbers with the same last digits, in E.164--> are two equal, and has one of these
                                                         customers no e-mail address?
                           yes: merge, delete the other row     no: no longer due

    one of them has an address ....... the others are merged into that one
    none has ......................... the others are merged into the oldest
    several have ..................... the others are merged into the oldest of the others: people
                                       share telephones, and it is not known which of those with an
                                       address gave only the number

A new customer without an address is due. One with an address, as most have, is due only if a
customer without one has a number with the same last digits, which the look-up of the customer
finds out (identity.py): so most numbers are never parsed. A customer is also due when their number
or country changes, and one without an address when the region of their hotel changes. Two units
that store customers at the same time do not see each other's rows: so a new customer is examined
when SETTLED_S have passed.

If a request is stored for a customer who is being merged, the foreign key makes one of the two
units fail and run again: no request is lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from alpinehub.customers.identity import GROUPS
from alpinehub.customers.phone import e164
from alpinehub.sql import encode_list
from cordata import Conflict, Row, Store, Tx

#: Customers of one unit: some milliseconds of the write lock.
STEP = 200
#: Longer than a unit of work takes from its first read to its commit ([store] write_timeout_s).
SETTLED_S = 60

#: A number as written, the hotel's region and the guest's country.
Written = tuple[str, str, str | None]
#: The number in E.164; None: not a valid number.
Numbers = Mapping[Written, str | None]

_log = logging.getLogger("alpinehub.customers")


async def merge_duplicates(store: Store) -> int:
    """Process all customers that are due. Returns how many were examined."""
    done, ids = 0, await process_step(store, 0)
    while len(ids) == STEP:  # the first step that is not full is the last: new ones may keep coming
        done += len(ids)
        ids = await process_step(store, ids[-1])
    return done + len(ids)


async def process_step(store: Store, after: int) -> Sequence[int]:
    """Process the next customers that are due, in one unit. Returns their ids."""

    async def due(tx: Tx) -> tuple[list[Row], list[Row]]:
        old = tx.now_us - SETTLED_S * 1_000_000
        rows = await tx.fetch_all("customer_due", after=after, limit=STEP, old=old)
        return rows, await _fetch_numbers(tx, rows)

    rows, alike = await store.read(due)
    if not rows:
        return ()
    regions = _regions(rows)
    written = {(one["phone"], regions[one["hotel_id"]], one["country"]) for one in alike}
    numbers = await asyncio.to_thread(lambda: {one: e164(*one) for one in written})
    try:
        await store.run(partial(_process, due=rows, numbers=numbers))
    except Conflict:
        pass  # a request arrived for a customer of this step: they are still due, and come again
    return [int(row["id"]) for row in rows]


def _regions(due: Iterable[Row]) -> Mapping[int, str]:
    """Hotel id -> region."""
    return {row["hotel_id"]: row["region"] for row in due}


async def _fetch_numbers(tx: Tx, due: Iterable[Row]) -> list[Row]:
    """The numbers that end with the same digits as a number of these customers."""
    tails = sorted({(row["hotel_id"], row["phone_tail"]) for row in due if row["phone"]})
    return await tx.fetch_all("customer_numbers", tails=encode_list(tails)) if tails else []


async def _process(tx: Tx, due: Sequence[Row], numbers: Numbers) -> None:
    read_with = [(one["id"], one["phone"], one["country"], one["region"]) for one in due]
    await tx.write("customer_looked_at", customers=encode_list(read_with))
    regions = _regions(due)
    alike: dict[tuple[int, str], list[Row]] = {}
    for one in await _fetch_numbers(tx, due):
        number = numbers.get((one["phone"], regions[one["hotel_id"]], one["country"]))
        if number is not None:
            alike.setdefault((one["hotel_id"], number), []).append(one)
    for (hotel_id, number), rows in sorted(alike.items(), key=lambda item: item[0]):
        await _merge_number(tx, rows, regions[hotel_id], number, numbers)


async def _merge_number(
    tx: Tx, rows: Sequence[Row], region: str, number: str, numbers: Numbers
) -> None:
    """Merge the customers with one number; `rows` are all the ways in which it is written. A
    customer into whom others were merged is due again.
    """
    owners = sum(row["owners"] for row in rows)
    count = sum(row["customers"] for row in rows)
    if count == 1 or count == owners:
        return
    found = await tx.fetch_all(
        "customer_without_email",
        lock=True,
        hotel_id=rows[0]["hotel_id"],
        phone_tail=rows[0]["phone_tail"],
        owner=next((row["owner"] for row in rows if row["owner"] is not None), None),
    )
    customers = [
        dict(one) for one in found if numbers.get((one["phone"], region, one["country"])) == number
    ]
    if owners > 1:
        customers = [one for one in customers if one["email"] is None]
    customers.sort(key=lambda one: (one["email"] is None, one["id"]))
    if len(customers) > 1:
        await _merge(tx, customers[0], customers[1:])


async def _merge(tx: Tx, one: dict[str, Any], others: list[dict[str, Any]]) -> None:
    ids = encode_list(other["id"] for other in others)
    await tx.execute("customer_move_requests", id=one["id"], ids=ids)
    await tx.execute("customer_delete", ids=ids)
    # The latest answer counts; of two at the same time, the refusal of consent.
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
    """The merged columns: each group of columns from the first customer who has it."""
    known: dict[str, object] = {}
    for group in GROUPS:
        having = (one for one in customers if any(one[name] is not None for name in group))
        first = next(having, customers[0])
        known |= {name: first[name] for name in group}
    return known
