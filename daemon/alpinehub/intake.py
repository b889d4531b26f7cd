"""Taking in one submission: all its rows and its event, in one unit.

    new external id ........................ version 1, reservation.received
    known, same content as the newest ...... nothing, the id of before
    known, older by the source's order ..... nothing, the id of before
    known, said before a cancellation ...... nothing, the id of before, unless the source's order
                                             says that it is newer
    known, other content ................... version + 1, reservation.modified or .cancelled

Two workers with the same external id or idempotency key meet at a unique constraint: the one that
comes second runs its unit again and finds what the first one wrote.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from alpinehub import counts
from alpinehub.customers.identity import find_or_create
from alpinehub.models import Source
from alpinehub.reservations import (
    STAY,
    ReservationData,
    content_hash,
    decode,
    encode,
    new_id,
    next_res_status,
)
from cordata import Conflict, Row, Store, StoreUnavailable, Tx

#: Runs of one unit that loses races for unique keys; the next run finds the winner's row. In each
#: round somebody wins: so many may change one reservation in several processes at once.
RUNS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The place of a submission among those of its reservation, as the sender tells it."""

    #: Goes up with each change; decides where both submissions have one.
    sequence: int | None = None
    #: Microseconds since the epoch.
    sent_at: int | None = None

    def until(self, now_us: int) -> Order:
        """A sender's clock that is ahead must not outdo what is sent later."""
        if self.sent_at is None or self.sent_at <= now_us:
            return self
        return Order(sequence=self.sequence, sent_at=now_us)

    def compare(self, known: Row) -> int:
        """Negative: older than the newest that came; positive: newer; 0: the same, or unknown."""
        for mine, newest in (
            (self.sequence, known["sequence"]),
            (self.sent_at, known["sent_at"]),
        ):
            if mine is not None and newest is not None:
                return mine - int(newest)
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One submission, checked and normalised, with all it takes to store it."""

    source: Source
    data: ReservationData
    external_id: str | None
    order: Order = Order()
    #: Why a cancellation cannot be the first thing heard of a reservation; empty: it can.
    incomplete: Sequence[object] = ()
    body: bytes
    #: JSON of the headers worth keeping.
    headers: str
    request_id: str
    #: The sender's Idempotency-Key, and the hash of the body it stands for.
    key: str | None = None
    body_hash: str = ""
    #: The row of the inbox that holds it already, which the caller settles; None: make one.
    inbox_id: int | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """What became of a submission."""

    reservation_id: str
    #: duplicate: it said nothing new, and nothing of it was written.
    outcome: Literal["new", "changed", "duplicate"]
    #: The newest version of the reservation; 0: not looked up.
    version: int = 0


class Unknown(Exception):
    """A cancellation of something never heard of, and too little to be a record of its own."""


async def take_in(store: Store, arrival: Arrival, *, now_us: int) -> Stored:
    """Store it; what became of it, after the commit.

    Raises: KeyReused, Unknown (nothing is written then), StoreUnavailable. Cancelling is safe: it
    is stored whole or not at all, and sent again it gets the same id.
    """
    version = _Version(arrival, new_id(now_us))
    for _ in range(RUNS):
        try:
            return await store.run(version.store_counted)
        except Conflict:
            continue
    raise StoreUnavailable("too many change the same reservation at once", retry_after_s=1)


async def store_arrival(tx: Tx, arrival: Arrival, known: Row | None) -> Stored:
    """Store one without a key in a unit of the caller's, which runs again if that is a Conflict.

    `known`: its reservation, as `find_reservation` has it. Raises: Unknown, Conflict,
    StoreUnavailable.
    """
    return await _Version(arrival, new_id(tx.now_us)).store_known(tx, known)


class _Version:
    """The unit. All that costs time and needs no store is done when it is made."""

    __slots__ = ("_arrival", "_data", "_hash", "_id")

    def __init__(self, arrival: Arrival, fresh_id: str) -> None:
        encoded = encode(arrival.data)
        self._arrival = arrival
        self._data = encoded.decode()
        self._hash = content_hash(encoded)
        self._id = fresh_id

    async def store_counted(self, tx: Tx) -> Stored:
        """Look up and store; what says nothing new leaves no row behind, so it is counted."""
        stored = await self._store_once(tx)
        if stored.outcome == "duplicate":
            await counts.note(tx, self._arrival.source.hotel.id, "duplicates")
        return stored

    async def _store_once(self, tx: Tx) -> Stored:
        arrival = self._arrival
        if arrival.key is None:
            return await self._store(tx)
        stored: Stored | None = None

        async def store() -> str:
            nonlocal stored
            stored = await self._store(tx)
            return stored.reservation_id

        reservation_id = await tx.remembered(
            f"source:{arrival.source.id}", arrival.key, store, body_hash=arrival.body_hash
        )
        return stored or Stored(reservation_id, "duplicate")

    async def _store(self, tx: Tx) -> Stored:
        arrival = self._arrival
        if arrival.external_id is None:
            return await self._add(tx)
        known = await tx.fetch_one(
            "find_reservation", source_id=arrival.source.id, external_id=arrival.external_id
        )
        return await self.store_known(tx, known)

    async def store_known(self, tx: Tx, known: Row | None) -> Stored:
        """Store it as a new reservation, or as the next version of a known one."""
        if known is None:
            return await self._add(tx)
        place = self._arrival.order.until(tx.now_us).compare(known)
        if place < 0 or await self._says_nothing_new(tx, known, is_newer=place > 0):
            if place > 0:
                await self._note_order(tx, known["id"])
            return Stored(str(known["id"]), "duplicate", int(known["version"]))
        await self._change(tx, known)
        return Stored(str(known["id"]), "changed", int(known["version"]) + 1)

    async def _says_nothing_new(self, tx: Tx, known: Row, *, is_newer: bool) -> bool:
        """Whether it is what the newest version is, or a late repetition of what a cancellation
        ended since. A cancellation is none: it is about what is there now.
        """
        if known["content_hash"] == self._hash:
            return True
        if is_newer or self._arrival.data.status == "cancelled":
            return False
        values = {"id": known["id"], "content_hash": self._hash}
        return await tx.fetch_one("find_ended", **values) is not None

    async def _add(self, tx: Tx) -> Stored:
        """Version 1 of a new reservation."""
        arrival = self._arrival
        if arrival.incomplete:
            raise Unknown()
        source, data = arrival.source, arrival.data
        await tx.write(
            "insert_reservation",
            id=self._id,
            hotel_id=source.hotel.id,
            source_id=source.id,
            external_id=arrival.external_id,
            customer_id=await find_or_create(tx, source.hotel.id, data),
            status=data.status,
            ends_on=ends_on(data),
            now=tx.now_us,
        )
        await self._add_version(tx, self._id, 1, next_res_status(data.status, None), self._data)
        await self._note_order(tx, self._id)
        await self._publish(tx, "reservation.received", self._id, 1)
        return Stored(self._id, "new", 1)

    async def _change(self, tx: Tx, known: Row) -> None:
        """The next version of a known reservation."""
        arrival = self._arrival
        data, text = arrival.data, self._data
        if data.status == "cancelled":
            data = carry_over(decode(known["data"]), data)
            text = encode(data).decode()
        customer_id = known["customer_id"]
        if data.email or data.phone or customer_id is None:
            customer_id = await find_or_create(tx, arrival.source.hotel.id, data)
        reservation_id, version = str(known["id"]), int(known["version"]) + 1
        found = await tx.execute(
            "update_reservation",
            id=reservation_id,
            version=version,
            status=data.status,
            customer_id=customer_id,
            ends_on=ends_on(data),
            now=tx.now_us,
        )
        if not found:  # it was kept long enough, and ended just now: then this is a new one
            raise Conflict(f"reservation {reservation_id} is gone")
        res_status = next_res_status(data.status, known["status"])
        await self._add_version(tx, reservation_id, version, res_status, text)
        await self._note_order(tx, reservation_id)
        event = "cancelled" if data.status == "cancelled" else "modified"
        await self._publish(tx, f"reservation.{event}", reservation_id, version)

    async def _note_order(self, tx: Tx, reservation_id: str) -> None:
        order = self._arrival.order.until(tx.now_us)
        if order != Order():
            values = {"sequence": order.sequence, "sent_at": order.sent_at}
            await tx.write("note_order", id=reservation_id, **values)

    async def _add_version(
        self, tx: Tx, reservation_id: str, version: int, res_status: str, data: str
    ) -> None:
        arrival = self._arrival
        await tx.write(
            "insert_version",
            reservation_id=reservation_id,
            version=version,
            content_hash=self._hash,
            res_status=res_status,
            data=data,
            request_id=arrival.request_id,
            now=tx.now_us,
        )
        if arrival.inbox_id is None:
            await self._add_inbox(tx, reservation_id, version)
        # Behind the inbox: who grants the hotel to an account meanwhile holds its source
        # (accounts.py).
        if version > 1:
            await tx.write("end_waiting", reservation_id=reservation_id)
        await tx.write(
            "fan_out",
            reservation_id=reservation_id,
            version=version,
            hotel_id=arrival.source.hotel.id,
            unique_id_type=arrival.data.unique_id_type,
        )

    async def _add_inbox(self, tx: Tx, reservation_id: str, version: int) -> None:
        """What a strict source sent: it is in the inbox only when it can be used."""
        arrival = self._arrival
        await tx.write(
            "insert_inbox",
            source_id=arrival.source.id,
            external_id=arrival.external_id,
            now=tx.now_us,
            headers=arrival.headers,
            body=arrival.body,
            reservation_id=reservation_id,
            request_id=arrival.request_id,
            outcome="new" if version == 1 else "changed",
        )

    async def _publish(self, tx: Tx, event: str, reservation_id: str, version: int) -> None:
        """Ids only: whoever handles it reads what he is allowed to read."""
        source = self._arrival.source
        await tx.publish(
            event,
            {
                "reservation_id": reservation_id,
                "version": version,
                "hotel_id": source.hotel.id,
                "source_id": source.id,
                "status": self._arrival.data.status,
            },
            key=reservation_id,
        )


def ends_on(data: ReservationData) -> str | None:
    """`reservation.ends_on`: until when an account may be given it that did not get it before."""
    return None if data.last_day is None else data.last_day.isoformat()


def carry_over(before: ReservationData, now: ReservationData) -> ReservationData:
    """A cancellation that says little, with what was known before it; what it says counts."""
    said = {
        f.name: value
        for f in msgspec.structs.fields(now)
        if f.name not in STAY and ((value := getattr(now, f.name)) is False or value)
    }
    if now.has_stay:  # as a whole; half a stay is none
        said |= {name: getattr(now, name) for name in STAY}
    return msgspec.structs.replace(before, **said)
