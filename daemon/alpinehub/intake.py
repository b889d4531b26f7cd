"""Taking in one submission: all its rows and its event, in one unit.

    new external id ........................ version 1, reservation.received
    known, same content as the newest ...... nothing, the id of before
    known, other content ................... version + 1, reservation.modified or .cancelled

Two workers with the same external id or idempotency key meet at a unique constraint: the one that
comes second runs its unit again and finds what the first one wrote.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from alpinehub.customers import find_or_create
from alpinehub.directory import Source
from alpinehub.reservations import (
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
_RUNS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One submission, checked and normalised, with all it takes to store it."""

    source: Source
    data: ReservationData
    external_id: str | None
    #: Why a cancellation cannot be the first thing heard of a reservation; empty: it can.
    incomplete: Sequence[object] = ()
    body: bytes
    #: JSON of the headers worth keeping.
    headers: str
    request_id: str
    #: The sender's Idempotency-Key, and the hash of the body it stands for.
    key: str | None = None
    body_hash: str = ""


class Unknown(Exception):
    """A cancellation of something never heard of, and too little to be a record of its own."""


async def take_in(store: Store, arrival: Arrival, *, now_us: int) -> str:
    """Store it; the reservation's id, after the commit.

    Raises: KeyReused, Unknown (nothing is written then), StoreUnavailable. Cancelling is safe: it
    is stored whole or not at all, and sent again it gets the same id.
    """
    encoded = encode(arrival.data)
    version = _Version(arrival, encoded.decode(), content_hash(encoded), new_id(now_us))
    for _ in range(_RUNS):
        try:
            return await store.run(version.store)
        except Conflict:
            continue
    raise StoreUnavailable("too many change the same reservation at once", retry_after_s=1)


class _Version:
    """The unit. All that costs time and needs no store was done before it."""

    __slots__ = ("_arrival", "_data", "_hash", "_id")

    def __init__(self, arrival: Arrival, data: str, digest: bytes, fresh_id: str) -> None:
        self._arrival = arrival
        self._data = data
        self._hash = digest
        self._id = fresh_id

    async def store(self, tx: Tx) -> str:
        arrival = self._arrival
        if arrival.key is None:
            return await self._store(tx)
        return await tx.remembered(
            f"source:{arrival.source.id}",
            arrival.key,
            lambda: self._store(tx),
            body_hash=arrival.body_hash,
        )

    async def _store(self, tx: Tx) -> str:
        arrival = self._arrival
        if arrival.external_id is None:
            return await self._add(tx)
        known = await tx.fetch_one(
            "find_reservation", source_id=arrival.source.id, external_id=arrival.external_id
        )
        if known is None:
            return await self._add(tx)
        if known["content_hash"] != self._hash:
            await self._change(tx, known)
        return str(known["id"])

    async def _add(self, tx: Tx) -> str:
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
            now=tx.now_us,
        )
        await self._add_version(tx, self._id, 1, next_res_status(data.status, None), self._data)
        await self._publish(tx, "reservation.received", self._id, 1)
        return self._id

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
        await tx.write(
            "update_reservation",
            id=reservation_id,
            version=version,
            status=data.status,
            customer_id=customer_id,
            now=tx.now_us,
        )
        res_status = next_res_status(data.status, known["status"])
        await self._add_version(tx, reservation_id, version, res_status, text)
        event = "cancelled" if data.status == "cancelled" else "modified"
        await self._publish(tx, f"reservation.{event}", reservation_id, version)

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
        await tx.write(
            "insert_inbox",
            source_id=arrival.source.id,
            external_id=arrival.external_id,
            now=tx.now_us,
            headers=arrival.headers,
            body=arrival.body,
            reservation_id=reservation_id,
            request_id=arrival.request_id,
        )
        # Behind the inbox: who grants the hotel to a user meanwhile holds its source (users.py).
        if version > 1:
            await tx.write("end_waiting", reservation_id=reservation_id)
        await tx.write(
            "fan_out",
            reservation_id=reservation_id,
            version=version,
            hotel_id=arrival.source.hotel.id,
            unique_id_type=arrival.data.unique_id_type,
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


def carry_over(before: ReservationData, now: ReservationData) -> ReservationData:
    """A cancellation that says little, with what was known before it; what it says counts."""
    said = {
        f.name: value
        for f in msgspec.structs.fields(now)
        if (value := getattr(now, f.name)) not in (None, "", 0, (), {})
    }
    if (now.arrival is None) != (now.departure is None):  # half a stay is none
        said = {name: said[name] for name in said if name not in ("arrival", "departure")}
    if now.newsletter is not None:
        said["newsletter"] = now.newsletter
    return msgspec.structs.replace(before, **said)
