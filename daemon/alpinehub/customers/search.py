"""Finds customers by address, number, id or a part of the name."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from alpinehub.customers.phone import digits_of, e164, tail_of
from alpinehub.hotels import require_hotel
from alpinehub.sql import encode_list
from cordata import Row, Store, Tx

#: Maximum number of customers that are shown by name.
MAX_FOUND = 50

Customer = dict[str, Any]


class PersonQuery(Struct, frozen=True, kw_only=True):
    """Names a person by one of address, number and id, at all hotels or at one (its code)."""

    email: str | None = None
    phone: str | None = None
    id: int | None = None
    hotel: str | None = None


async def find_customers(store: Store, query: PersonQuery) -> list[Customer]:
    """The customers of a query; none if the person is known only from submissions."""
    return await find(store, email=query.email, phone=query.phone, id=query.id, hotel=query.hotel)


async def find(
    store: Store,
    *,
    email: str | None = None,
    phone: str | None = None,
    id: int | None = None,
    name: str | None = None,
    hotel: str | None = None,
) -> list[Customer]:
    """The customers who match any criterion, of all hotels or of one (its code), sorted by id.

    `phone` is read for the region of each hotel. `name` is a part of the name; it finds the newest
    MAX_FOUND and one more, which shows that there are more. Raises: Unusable if there is no such
    hotel.
    """
    ids: list[int] = [] if id is None else [id]
    if phone is not None:
        ids += await _ids_by_number(store, plain_number(phone))

    async def unit(tx: Tx) -> list[Row]:
        hotel_id = None if hotel is None else await require_hotel(tx, hotel)
        found: list[Row] = []
        if email is not None:
            found += await tx.fetch_all("customer_ids_by_email", email=email.strip().lower())
        if name is not None:
            escaped = name.strip().replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
            found += await tx.fetch_all(
                "customer_ids_by_name",
                pattern=f"%{escaped}%",
                hotel_id=hotel_id,
                limit=MAX_FOUND + 1,
            )
        known = {*ids, *(row["id"] for row in found)}
        return await tx.fetch_all("customer_read", ids=encode_list(sorted(known)))

    rows = await store.read(unit)
    return await with_numbers([row for row in rows if hotel is None or row["hotel"] == hotel])


async def with_numbers(rows: Sequence[Row]) -> list[Customer]:
    """Rows of `customer_read`, each with its telephone number in E.164, None if there is none."""

    def read(row: Row) -> Customer:
        number = row["phone"] and e164(row["phone"], row["region"], row["country"])
        return {**row, "phone_e164": number}

    return await asyncio.to_thread(lambda: list(map(read, rows)))


async def _ids_by_number(store: Store, phone: str) -> list[int]:
    """The ids of customers with this number, in any way of writing."""
    rows = await store.read(lambda tx: tx.fetch_all("customer_by_tail", tail=tail_of(phone)))

    def compare() -> list[int]:
        numbers = {region: e164(phone, region) or phone for region in {r["region"] for r in rows}}
        return [
            row["id"]
            for row in rows
            if row["phone"] == phone
            or e164(row["phone"], row["region"], row["country"]) == numbers[row["region"]]
        ]

    return await asyncio.to_thread(compare)


def plain_number(phone: str) -> str:
    """The digits of a number, and its leading +."""
    plus = "+" if phone.strip().startswith("+") else ""
    return plus + digits_of(phone.replace("(0)", ""))
