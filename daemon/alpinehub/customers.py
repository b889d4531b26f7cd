"""Customers of a hotel: found again by e-mail address, else by telephone number, else new."""

from __future__ import annotations

from alpinehub.reservations import ReservationData
from cordata import Tx


async def find_or_create(tx: Tx, hotel_id: int, data: ReservationData) -> int:
    """The id of the customer a record speaks of; within the unit that stores the record.

    Who gives neither address nor number is a new customer each time. One who was known by one of
    the two is known by both from now on; two addresses are two customers, even with one number.
    What he said of himself stays with each version.
    """
    email = data.email.lower() or None
    phone = data.phone or None
    row = None
    if email is not None:
        row = await tx.fetch_one("find_customer", hotel_id=hotel_id, email=email, phone=phone)
    elif phone is not None:
        row = await tx.fetch_one("find_customer_by_phone", hotel_id=hotel_id, phone=phone)
    if row is not None:
        if (email and row["email"] is None) or (phone and row["phone"] is None):
            await tx.write("complete_customer", id=row["id"], email=email, phone=phone)
        return int(row["id"])
    created = await tx.fetch_one(
        "create_customer", hotel_id=hotel_id, email=email, phone=phone, created_at=tx.now_us
    )
    assert created is not None
    return int(created["id"])
