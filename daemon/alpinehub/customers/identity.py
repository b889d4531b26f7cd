"""Customers of a hotel: found by e-mail address, else by telephone number, else new.

    an e-mail address ................ the customer with that address, in upper or lower case; else
                                       one with the same number and no address, if no customer with
                                       an address has the number; else a new one
    only a number .................... the customer with that number; if several have it, one
                                       without an e-mail address; else a new one
    neither .......................... a new customer each time

Numbers are compared here as they were written. The primary merges customers whose numbers are
equal but written differently, a minute later (duplicates.py); so a worker does not need the library
for telephone numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from alpinehub.customers.phone import tail_of
from alpinehub.reservations import ReservationData
from cordata import Conflict, Row, Tx

#: Columns of `customer` that are replaced together: half of a new address does not belong to the
#: rest of an old one.
GROUPS = (
    ("first_name", "last_name"),
    ("city", "postal_code", "country", "state"),
    ("email",),
    ("phone",),
    ("birth_date",),
    ("gender",),
    ("language",),
)
#: Every column that identifies a person.
COLUMNS = tuple(name for group in GROUPS for name in group)
#: `fits` of the query customer_find: a number that may be the same, written differently.
_SIMILAR_NUMBER = 3


def columns_of(data: ReservationData) -> dict[str, Any]:
    """The columns of `customer` from a record; None: not given."""
    given: dict[str, Any] = {name: getattr(data, name) or None for name in COLUMNS}
    given["email"] = data.email.lower() or None
    given["birth_date"] = data.birth_date and data.birth_date.isoformat()
    given["consent"] = None if data.consent is None else int(data.consent)
    return given


def changes_of(known: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The changes of a customer's columns: a value is set, "" clears, None leaves it as it is.

    Returns an empty dict if nothing is new.
    """
    found: dict[str, Any] = {}
    for group in GROUPS:
        if not any(given[name] for name in group):
            continue
        for name in group:
            if given[name] != known[name]:
                found[name] = given[name] or ""
    if given["consent"] is not None and (found or given["consent"] != known["consent"]):
        found["consent"] = given["consent"]  # also if unchanged: the time of the last answer counts
    return {name: found.get(name) for name in (*COLUMNS, "consent")} if found else {}


class MustRunAlone(Exception):
    """The unit must run without `batch=True`: it decides by rows that it only reads, or needs the
    id of a new customer.
    """


async def find_or_create(
    tx: Tx,
    hotel_id: int,
    data: ReservationData,
    *,
    received: ReservationData,
    received_at: int,
    batch: bool = False,
) -> int | None:
    """The id of the customer of a record; runs in the unit that stores the record.

    The customer is found, or created, by `data`. Only `received`, which is `data` without the
    fields that were carried over from an older record, replaces data of a known customer or counts
    as their consent; and the consent only if none was given or refused after `received_at`.
    `batch`: the unit is batched; then None means a new customer, whom later statements find by the
    e-mail address.

    Raises: Conflict if another unit creates the same customer meanwhile, or merges two: when the
    unit runs again, it finds them. MustRunAlone if the customer has no e-mail address, or changes.
    """
    given = columns_of(received)
    sought = columns_of(data) | {"consent": given["consent"]}
    times = {"received_at": received_at, "now": tx.now_us}
    if batch and sought["email"] is None:
        raise MustRunAlone
    row, may_be_two = await _find(tx, hotel_id, sought["email"], sought["phone"])
    if row is not None:
        if changes := changes_of(dict(row), given):
            if batch:
                raise MustRunAlone
            await tx.write("customer_update", id=row["id"], **times, **changes)
        elif given["consent"] is not None and row["phone"]:
            # Nothing new, but they may later be merged with a customer of the same number who
            # answered otherwise, and then the latest answer of the two counts.
            await tx.write("customer_consent_again", id=row["id"], **times)
        return int(row["id"])
    columns = {
        "hotel_id": hotel_id,
        **sought,
        "consent_at": None if given["consent"] is None else received_at,
        "phone_due": int(may_be_two),
        "created_at": tx.now_us,
    }
    if batch:
        await tx.insert("customer", **columns)
        return None
    created = await tx.fetch_one("customer_create", **columns)
    if created is None:
        raise Conflict("another unit made this customer meanwhile")
    return int(created["id"])


async def _find(
    tx: Tx, hotel_id: int, email: str | None, phone: str | None
) -> tuple[Row | None, bool]:
    """The customer or None; and whether a new one may be a duplicate of a customer who wrote the
    number differently (one of the two has no e-mail address).
    """
    number = {"phone": phone, "phone_tail": None if phone is None else tail_of(phone)}
    if email is not None:
        rows = await tx.fetch_all("customer_find", hotel_id=hotel_id, email=email, **number)
        if not rows:
            return None, False
        first = min(rows, key=lambda row: int(row["fits"]))
        return (first if first["fits"] != _SIMILAR_NUMBER else None), True
    if phone is None:
        return None, False
    rows = await tx.fetch_all("customer_find_by_phone", hotel_id=hotel_id, **number)
    return (rows[0] if rows and (len(rows) == 1 or rows[0]["email"] is None) else None), True
