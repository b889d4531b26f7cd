"""The peer of the webhook benchmark: the same work as people write it, FastAPI + SQLAlchemy 2.

Same checks, same rows (inbox, customer, reservation, version, outbox), one transaction a request,
same disk, same durability (SQLite: WAL, synchronous=FULL; PostgreSQL by asyncpg, fsync on).

    PEER_DATABASE=sqlite+aiosqlite:////path/peer.db python -m tests.bench.peer_fastapi
    PEER_DATABASE=... uvicorn tests.bench.peer_fastapi:app --workers 4
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime
from typing import Annotated, Any, ClassVar, Literal

from fastapi import Depends, FastAPI, Header, HTTPException, Request
from pydantic import BaseModel, ConfigDict, Field, model_validator
from sqlalchemy import DateTime, ForeignKey, Index, UniqueConstraint, event, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

SECRET_HASH = hashlib.sha256(b"demo").digest()

DATABASE = os.environ["PEER_DATABASE"]
EMBEDDED = DATABASE.startswith("sqlite")

engine = create_async_engine(DATABASE, connect_args={"timeout": 60} if EMBEDDED else {})
Session = async_sessionmaker(engine, expire_on_commit=False)


def set_durability(connection: Any, _record: Any) -> None:
    """WAL with a synced commit, as in the embedded store."""
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def begin_immediate(connection: Any) -> None:
    """The write lock first: a deferred transaction would fail with `database is locked`."""
    connection.exec_driver_sql("BEGIN IMMEDIATE")


if EMBEDDED:
    event.listen(engine.sync_engine, "connect", set_durability)
    event.listen(engine.sync_engine, "begin", begin_immediate)


def now() -> datetime:
    return datetime.now(UTC)


def new_id() -> str:
    return uuid.uuid4().hex


class Base(DeclarativeBase):
    type_annotation_map: ClassVar[dict[Any, Any]] = {datetime: DateTime(timezone=True)}


class Customer(Base):
    __tablename__ = "customer"
    id: Mapped[str] = mapped_column(primary_key=True, default=new_id)
    hotel_code: Mapped[str]
    email: Mapped[str]
    data: Mapped[str]
    __table_args__ = (UniqueConstraint("hotel_code", "email"),)


class Reservation(Base):
    __tablename__ = "reservation"
    id: Mapped[str] = mapped_column(primary_key=True, default=new_id)
    hotel_code: Mapped[str]
    external_id: Mapped[str]
    customer_id: Mapped[str] = mapped_column(ForeignKey("customer.id"))
    created_at: Mapped[datetime] = mapped_column(default=now)
    __table_args__ = (UniqueConstraint("hotel_code", "external_id"),)


class ReservationVersion(Base):
    __tablename__ = "reservation_version"
    reservation_id: Mapped[str] = mapped_column(ForeignKey("reservation.id"), primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True)
    content_hash: Mapped[str]
    res_status: Mapped[str]
    data: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(default=now)


class Inbox(Base):
    __tablename__ = "inbox"
    id: Mapped[str] = mapped_column(primary_key=True, default=new_id)
    external_id: Mapped[str]
    received_at: Mapped[datetime] = mapped_column(default=now)
    body: Mapped[str]
    state: Mapped[str]
    reservation_id: Mapped[str | None] = mapped_column(ForeignKey("reservation.id"))


class Outbox(Base):
    __tablename__ = "outbox"
    id: Mapped[int] = mapped_column(primary_key=True)
    event_id: Mapped[str] = mapped_column(default=new_id, unique=True)
    type: Mapped[str]
    payload: Mapped[str]
    state: Mapped[str] = mapped_column(default="pending")
    created_at: Mapped[datetime] = mapped_column(default=now)
    __table_args__ = (
        Index(
            "outbox_pending",
            "id",
            sqlite_where=state == "pending",
            postgresql_where=state == "pending",
        ),
    )


class Booking(BaseModel):
    """The generic payload."""

    model_config = ConfigDict(extra="forbid")
    hotel_code: str = Field(max_length=64)
    status: Literal["request", "reservation", "cancelled"]
    external_id: str = Field(max_length=128)
    arrival: date
    departure: date
    adults: int = Field(ge=1, le=99)
    children: list[Annotated[int, Field(ge=0, le=17)]] = []
    first_name: str = Field(max_length=64)
    last_name: str = Field(max_length=64)
    email: str = Field(max_length=254, pattern=r"^[^@\s]+@[^@\s]+$")
    phone: str | None = Field(default=None, max_length=32)
    language: str | None = Field(default=None, pattern="^[a-z]{2}$")
    message: str | None = Field(default=None, max_length=10_000)
    newsletter: bool = False

    @model_validator(mode="after")
    def stay_has_nights(self) -> Booking:
        if self.departure <= self.arrival:
            raise ValueError("departure must be after arrival")
        return self


async def create_tables() -> None:
    """Once, before the workers start."""
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    await engine.dispose()


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
    yield
    await engine.dispose()


app = FastAPI(lifespan=lifespan)


async def session() -> AsyncIterator[AsyncSession]:
    async with Session() as one:
        yield one


@app.get("/api/health")
async def health() -> dict[str, str]:
    return {"status": "ok"}


async def find_customer(db: AsyncSession, booking: Booking) -> Customer:
    found = await db.scalar(
        select(Customer).where(
            Customer.hotel_code == booking.hotel_code, Customer.email == booking.email.lower()
        )
    )
    if found is None:
        found = Customer(
            hotel_code=booking.hotel_code,
            email=booking.email.lower(),
            data=booking.model_dump_json(include={"first_name", "last_name", "phone"}),
        )
        db.add(found)
    return found


@app.post("/api/webhook/generic")
async def receive(
    booking: Booking,
    request: Request,
    db: Annotated[AsyncSession, Depends(session)],
    x_webhook_secret: Annotated[str, Header()] = "",
) -> dict[str, str]:
    if not hmac.compare_digest(hashlib.sha256(x_webhook_secret.encode()).digest(), SECRET_HASH):
        raise HTTPException(401)
    content = booking.model_dump_json()
    body = (await request.body()).decode()
    try:
        async with db.begin():
            known = await db.scalar(
                select(Reservation).where(
                    Reservation.hotel_code == booking.hotel_code,
                    Reservation.external_id == booking.external_id,
                )
            )
            if known is not None:
                return {"id": known.id}
            customer = await find_customer(db, booking)
            await db.flush()
            reservation = Reservation(
                hotel_code=booking.hotel_code,
                external_id=booking.external_id,
                customer_id=customer.id,
            )
            db.add(reservation)
            await db.flush()
            db.add(
                ReservationVersion(
                    reservation_id=reservation.id,
                    version=1,
                    content_hash=hashlib.sha256(content.encode()).hexdigest(),
                    res_status="Requested" if booking.status == "request" else "Reserved",
                    data=content,
                )
            )
            db.add(
                Inbox(
                    external_id=booking.external_id,
                    body=body,
                    state="mapped",
                    reservation_id=reservation.id,
                )
            )
            db.add(
                Outbox(
                    type="reservation.received",
                    payload=json.dumps({"reservation_id": reservation.id, "version": 1}),
                )
            )
        return {"id": reservation.id}
    except IntegrityError as error:
        raise HTTPException(409) from error


if __name__ == "__main__":
    asyncio.run(create_tables())
