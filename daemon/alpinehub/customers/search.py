"""Finds customers by address, number, id or a part of the name."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from alpinehub.customers.phone import e164
from alpinehub.hotels import Unusable
from alpinehub.sql import encode_list
from cordata import Row, Store, Tx

#: Most that one look-up by name shows.
MAX_FOUND = 50

Customer = dict[str, Any]


async def find(
    store: Store,
    *,
    email: str | None = None,
    phone: str | None = None,
    id: int | None = None,
    name: str | None = None,
    hotel: str | None = None,
) -> list[Customer]:
    """The customers that one of the criteria fits, of all hotels or of one (its code), by id.

    A number is read as each hotel's region would. `name`: a part of it, MAX_FOUND at most.
    Raises: Unusable when there is no such hotel.
    """
    hotels = await store.read(lambda tx: tx.fetch_all("customer_hotels"))
    if hotel is not None and hotel not in {row["code"] for row in hotels}:
        raise Unusable(f"there is no hotel {hotel!r}", hint="see `alpinehub hotel list`")
    ids: list[int] = [] if id is None else [id]
    if phone is not None:
        numbers = await asyncio.to_thread(_numbers, _plain(phone), hotels)

    async def unit(tx: Tx) -> list[Row]:
        found: list[Row] = []
        if email is not None:
            found += await tx.fetch_all("customer_ids_by_email", email=email.strip().lower())
        if phone is not None:
            found += await tx.fetch_all("customer_ids_by_number", numbers=encode_list(numbers))
        if name is not None:
            escaped = name.strip().replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
            found += await tx.fetch_all(
                "customer_ids_by_name", pattern=f"%{escaped}%", limit=MAX_FOUND
            )
        known = {*ids, *(row["id"] for row in found)}
        return await tx.fetch_all("customer_read", ids=encode_list(sorted(known)))

    rows = await store.read(unit)
    return [dict(row) for row in rows if hotel is None or row["hotel"] == hotel]


def _plain(phone: str) -> str:
    """The number without its layout."""
    plus = "+" if phone.strip().startswith("+") else ""
    return plus + "".join(c for c in phone.replace("(0)", "") if c in "0123456789")


def _numbers(phone: str, hotels: Iterable[Row]) -> Sequence[tuple[int, str | None, str]]:
    return [(row["id"], e164(phone, row["region"]), phone) for row in hotels]
