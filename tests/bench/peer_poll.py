"""The peer of the poll benchmark: the FastAPI application of the webhook benchmark also answers
OTA_Read, with lxml.

What waits is read by one statement, and one row of log is written for the poll, in one transaction.
That is less than the hub writes. A password is hashed at its first use and remembered.

    PEER_DATABASE=sqlite+aiosqlite:////path/peer.db python -m tests.bench.peer_poll
    PEER_DATABASE=... uvicorn tests.bench.peer_poll:app --workers 4
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections import Counter
from datetime import datetime
from typing import Annotated, cast

from fastapi import Depends, Form, HTTPException, Response
from fastapi.security import HTTPBasic, HTTPBasicCredentials
from lxml import etree
from sqlalchemy import ForeignKey, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Mapped, mapped_column
from tests.bench.peer_fastapi import (
    Base,
    Booking,
    Reservation,
    ReservationVersion,
    Session,
    app,
    create_tables,
    now,
    session,
)

#: Hotels with an account each, as hub_load_store.py names them.
HOTELS = 64
_PASSWORD = "load"
_NAMESPACE = "http://www.opentravel.org/OTA/2003/05"
_OTA = f"{{{_NAMESPACE}}}"
#: None is the default namespace, which the stubs do not know.
_NAMESPACES = cast("dict[str, str]", {None: _NAMESPACE})


class Account(Base):
    __tablename__ = "account"
    name: Mapped[str] = mapped_column(primary_key=True)
    password: Mapped[bytes]
    hotel_code: Mapped[str]
    hotel_name: Mapped[str]


class Acknowledgement(Base):
    __tablename__ = "acknowledgement"
    reservation_id: Mapped[str] = mapped_column(ForeignKey("reservation.id"), primary_key=True)
    account: Mapped[str] = mapped_column(ForeignKey("account.name"), primary_key=True)
    at: Mapped[datetime] = mapped_column(default=now)


class PollLog(Base):
    __tablename__ = "poll_log"
    id: Mapped[int] = mapped_column(primary_key=True)
    account: Mapped[str] = mapped_column(ForeignKey("account.name"))
    at: Mapped[datetime] = mapped_column(default=now)
    count: Mapped[int]


def hash_of(password: str, name: str) -> bytes:
    return hashlib.scrypt(password.encode(), salt=name.encode(), n=2, r=8, p=1, dklen=32)


#: By name: the account, and the SHA-256 of the password that it last came with.
_known: dict[str, tuple[Account, bytes]] = {}


async def log_in(
    credentials: Annotated[HTTPBasicCredentials, Depends(HTTPBasic())],
    db: Annotated[AsyncSession, Depends(session)],
) -> Account:
    said = hashlib.sha256(credentials.password.encode()).digest()
    known = _known.get(credentials.username)
    if known is not None and hmac.compare_digest(known[1], said):
        return known[0]
    account = await db.get(Account, credentials.username)
    await db.commit()
    if account is None or not hmac.compare_digest(
        account.password, hash_of(credentials.password, account.name)
    ):
        raise HTTPException(401)
    _known[account.name] = (account, said)
    return account


@app.post("/api/alpinebits")
async def alpinebits(
    account: Annotated[Account, Depends(log_in)],
    action: Annotated[str, Form()],
    request: Annotated[str, Form()],
    db: Annotated[AsyncSession, Depends(session)],
) -> Response:
    if action != "OTA_Read:GuestRequests":
        raise HTTPException(400, "unknown or missing action")
    wanted = etree.fromstring(request.encode()).find(f".//{_OTA}HotelReadRequest")
    if wanted is None or wanted.get("HotelCode") != account.hotel_code:
        raise HTTPException(400, "invalid hotel code")
    async with db.begin():
        rows = (
            await db.execute(
                select(Reservation, ReservationVersion)
                .join(ReservationVersion)
                .where(
                    Reservation.hotel_code == account.hotel_code,
                    ~select(Acknowledgement)
                    .where(
                        Acknowledgement.reservation_id == Reservation.id,
                        Acknowledgement.account == account.name,
                    )
                    .exists(),
                )
                .order_by(Reservation.created_at)
            )
        ).all()
        db.add(PollLog(account=account.name, count=len(rows)))
    root = etree.Element(f"{_OTA}OTA_ResRetrieveRS", Version="7.000", nsmap=_NAMESPACES)
    etree.SubElement(root, f"{_OTA}Success")
    found = etree.SubElement(root, f"{_OTA}ReservationsList")
    for reservation, version in rows:
        add_reservation(found, reservation, version, account)
    xml = etree.tostring(root, xml_declaration=True, encoding="UTF-8")
    return Response(xml, media_type="text/xml; charset=utf-8")


def add_reservation(
    parent: etree._Element, reservation: Reservation, version: ReservationVersion, account: Account
) -> None:
    """What a webhook of the benchmark said, as AlpineBits 2024-10 has it."""
    booking = Booking.model_validate_json(version.data)
    add = etree.SubElement
    one = add(
        parent,
        f"{_OTA}HotelReservation",
        CreateDateTime=reservation.created_at.strftime("%Y-%m-%dT%H:%M:%S+00:00"),
        RoomStayReservation="true",
        ResStatus=version.res_status,
    )
    add(one, f"{_OTA}UniqueID", Type="14", ID=reservation.id)
    stay = add(add(one, f"{_OTA}RoomStays"), f"{_OTA}RoomStay")
    counts = add(stay, f"{_OTA}GuestCounts")
    add(counts, f"{_OTA}GuestCount", Count=str(booking.adults))
    for age, count in sorted(Counter(booking.children).items(), reverse=True):
        add(counts, f"{_OTA}GuestCount", Count=str(count), Age=str(age))
    add(
        stay,
        f"{_OTA}TimeSpan",
        Start=booking.arrival.isoformat(),
        End=booking.departure.isoformat(),
    )
    guest = add(add(one, f"{_OTA}ResGuests"), f"{_OTA}ResGuest")
    profile = add(add(add(guest, f"{_OTA}Profiles"), f"{_OTA}ProfileInfo"), f"{_OTA}Profile")
    customer = add(profile, f"{_OTA}Customer", Language=booking.language or "de")
    name = add(customer, f"{_OTA}PersonName")
    add(name, f"{_OTA}GivenName").text = booking.first_name
    add(name, f"{_OTA}Surname").text = booking.last_name
    if booking.phone:
        number = "+" + "".join(filter(str.isdigit, booking.phone))
        add(customer, f"{_OTA}Telephone", PhoneTechType="1", PhoneNumber=number)
    newsletter = "newsletter:" + ("yes" if booking.newsletter else "no")
    add(customer, f"{_OTA}Email", Remark=newsletter).text = booking.email
    info = add(one, f"{_OTA}ResGlobalInfo")
    if booking.message:
        comment = add(add(info, f"{_OTA}Comments"), f"{_OTA}Comment", Name="customer comment")
        add(comment, f"{_OTA}Text").text = booking.message
    add(
        add(info, f"{_OTA}HotelReservationIDs"),
        f"{_OTA}HotelReservationID",
        ResID_Type="14",
        ResID_Value=booking.external_id,
        ResID_Source="generic",
    )
    add(
        info,
        f"{_OTA}BasicPropertyInfo",
        HotelCode=account.hotel_code,
        HotelName=account.hotel_name,
    )


async def set_up() -> None:
    """Tables and accounts."""
    async with Session() as db:
        await create_tables()
        for number in range(HOTELS):
            code = f"LOAD{number:04}"
            name = f"{code.lower()}-0"
            password = hash_of(_PASSWORD, name)
            db.add(
                Account(name=name, password=password, hotel_code=code, hotel_name=f"Hotel {code}")
            )
        await db.commit()


if __name__ == "__main__":
    asyncio.run(set_up())
