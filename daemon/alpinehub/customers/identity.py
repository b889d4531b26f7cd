"""Customers of a hotel: found again by e-mail address, else by telephone number, else new.

    an e-mail address ................ is one customer, however it is written
    only a number .................... the customer who gave that number; of several, none of them:
                                       then it is somebody known by the number alone
    neither .......................... a new customer each time

Numbers are compared here as they were written: what they mean, and who is one person for that
reason, the primary finds out within seconds (maintenance.py). A worker needs no library for it
then.
"""

from __future__ import annotations

from alpinehub.customers.person import news, said_by
from alpinehub.reservations import ReservationData
from cordata import Conflict, Row, Tx


async def find_or_create(tx: Tx, hotel_id: int, data: ReservationData) -> int:
    """The id of the customer a record speaks of; within the unit that stores the record.

    What the record tells of him is what is known of him from now on. Raises: Conflict when somebody
    makes the same customer meanwhile, or one of two: run again, the unit finds him.
    """
    told = said_by(data)
    row = await _find(tx, hotel_id, told["email"], told["phone"])
    if row is not None:
        if changes := news(dict(row), told):
            await tx.write("customer_update", id=row["id"], now=tx.now_us, **changes)
            if changes["consent"] == 0:  # behind the update: it waits for whoever makes hashes
                await tx.write("customer_forget_hashes", ids=f"[{row['id']}]")
        elif told["consent"] is not None and row["phone"]:
            # Nothing new; but by his number he may be found to be one with somebody who said
            # otherwise, and then the latest word of the two counts.
            await tx.write("customer_consent_again", id=row["id"], now=tx.now_us)
        return int(row["id"])
    created = await tx.fetch_one(
        "customer_create",
        hotel_id=hotel_id,
        **told,
        consent_at=None if told["consent"] is None else tx.now_us,
        hash_due=int(bool(told["phone"] or told["consent"])),
        created_at=tx.now_us,
    )
    if created is None:
        raise Conflict("somebody made this customer meanwhile")
    return int(created["id"])


async def _find(tx: Tx, hotel_id: int, email: str | None, phone: str | None) -> Row | None:
    if email is not None:
        return await tx.fetch_one("customer_find", hotel_id=hotel_id, email=email, phone=phone)
    if phone is None:
        return None
    rows = await tx.fetch_all("customer_find_by_phone", hotel_id=hotel_id, phone=phone)
    return rows[0] if rows and (len(rows) == 1 or rows[0]["email"] is None) else None
