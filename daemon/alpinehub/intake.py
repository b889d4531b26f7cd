"""Stores one submission: all its rows and its events, in one unit of work.

    new external id ........................ version 1, reservation.received
    stored, same content as the newest ..... duplicate
    stored, older by the source's order .... duplicate
    stored, same content as a version
      before a cancellation ................ duplicate, unless it is newer by the source's order; a
                                             cancellation never is
    stored, other content .................. version + 1, reservation.modified or .cancelled

A duplicate gets the existing id. It writes no version and no event: it is counted, and if it is
newer by the source's order, the reservation gets that order.

A form that sends no id gets one that is made of content and time: the same content in the same or a
neighbouring slot of ten minutes (a double click, a reload) is one submission, a week later it is
another.

The unit runs until it commits, RUNS times at most:

    batched ------------------------ COMMIT --> stored
     |  |  ^                                      ^
     |  +--+ Conflict: run again                  |
     | MustRunAlone                               |
     v                                            |
    in a transaction of its own ---- COMMIT ------+
        |  ^
        +--+ Conflict: run again

The units of a batch do not see each other's rows: only unique constraints keep them apart. If two
store the same external id, idempotency key, version or e-mail address of a customer, the second
is run again by the store, and finds the rows of the first; a Conflict comes here only if it
collides again. A unit that changes a customer, or has no e-mail address, depends on rows that no
constraint protects, so it cannot be batched. Nor can one that gives an existing reservation a new
customer: the batch does not know their id yet. One with an id made of its content is never batched,
since no unique constraint compares the ids of two slots: it locks its content.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from hashlib import blake2b
from typing import Literal, NamedTuple, Protocol, TypeVar

import msgspec

from alpinehub import counts, history
from alpinehub.customers.identity import MustRunAlone, find_or_create
from alpinehub.models import Hotel
from alpinehub.reservations import (
    ReservationData,
    ResStatus,
    Status,
    content_hash,
    decode,
    encode,
    new_id,
    next_res_status,
    unique_id_type,
)
from cordata import Conflict, Row, Store, StoreUnavailable, Tx

#: Limit of the runs of one unit. If several processes change one reservation at once, one of them
#: succeeds in each round: so up to this many may.
RUNS = 8
#: Width of a slot, in microseconds: see the top.
_SLOT_US = 600_000_000

T_co = TypeVar("T_co", covariant=True)


class SubmissionOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The position of a submission among those of its reservation, given by its sender."""

    #: Grows with each change; decides if both submissions have one.
    sequence: int | None = None
    #: Microseconds since the epoch; not after the submission was received.
    sent_at: int | None = None

    def compare(self, existing: Row) -> int:
        """Negative: older than the newest stored; positive: newer; 0: the same, or unknown."""
        for mine, newest in (
            (self.sequence, existing["sequence"]),
            (self.sent_at, existing["sent_at"]),
        ):
            if mine is not None and newest is not None:
                return mine - int(newest)
        return 0


class NormalisedSubmission(msgspec.Struct, frozen=True, kw_only=True):
    """One submission, checked and normalised, with everything that is stored of it."""

    source_id: int
    hotel: Hotel
    data: ReservationData
    #: The id by which its sender knows it; None: it has none.
    external_id: str | None
    #: Whether one without an external id gets one of its content, so that the same again is a
    #: duplicate.
    content_is_id: bool = False
    order: SubmissionOrder = SubmissionOrder()
    #: Whether it may create its reservation: a cancellation that lacks the stay may not.
    may_create: bool = True
    body: bytes
    #: JSON of the headers to store.
    headers: str
    request_id: str
    #: The sender's Idempotency-Key, and the hash of the body it stands for.
    idempotency_key: str | None = None
    body_hash: str = ""
    #: Its row in the inbox, which the caller updates; None: insert one.
    inbox_id: int | None = None
    #: When it was received, in microseconds since the epoch; None: now.
    received_at: int | None = None
    #: Of a form: how its fields were mapped, for the history. Its duplicates are in the inbox, too.
    mapped_by: Mapping[str, object] | None = None


class StoreResult(msgspec.Struct, frozen=True):
    """The result of storing a submission."""

    reservation_id: str
    #: duplicate: it had nothing new; no version and no event were written.
    outcome: Literal["new", "changed", "duplicate"]


class UnknownReservation(Exception):
    """A cancellation of a reservation that is not stored, and too incomplete to create one."""


class TooManyConflicts(StoreUnavailable):
    """A constraint refused a unit in each of its runs: too many change the same reservation at
    once, or an error of the hub makes rows that no run can store.
    """


class Prepared(NamedTuple):
    """Computed from a submission before its unit, because it takes time and needs no store."""

    #: Id of the reservation if it is new.
    id: str
    data: str
    content_hash: bytes
    #: Whether the unit is batched (see the top).
    batch: bool = False


def prepare(submission: NormalisedSubmission, now_us: int) -> Prepared:
    """What a unit that stores the submission needs."""
    encoded = encode(submission.data)
    return Prepared(new_id(now_us), encoded.decode(), content_hash(encoded))


class BatchableUnit(Protocol[T_co]):
    """A unit that may run batched or alone."""

    async def __call__(self, tx: Tx, *, batch: bool) -> T_co:
        """Run it. Raises: MustRunAlone if `batch`, and it cannot be batched."""


async def run_until_stored(store: Store, unit: BatchableUnit[T_co], *, batch: bool) -> T_co:
    """Run a unit until it commits (see the top).

    Raises: StoreUnavailable, TooManyConflicts, what the unit raises.
    """
    refused: Conflict | None = None
    for _ in range(RUNS):
        try:
            return await store.run(partial(unit, batch=batch), batch=batch)
        except Conflict as conflict:  # the next run finds the other unit's rows
            refused = conflict
        except MustRunAlone:
            batch = False
    message = "too many changes of the same reservation at once"
    raise TooManyConflicts(message, retry_after_s=1) from refused


async def store_submission(
    store: Store, submission: NormalisedSubmission, *, now_us: int
) -> StoreResult:
    """Store a submission. Returns the result, after the commit.

    Raises: KeyReused, UnknownReservation (nothing is written then), StoreUnavailable. Cancelling
    is safe: the submission is stored as a whole or not at all; sent again, it gets the same id.
    """
    prepared = prepare(submission, now_us)
    unit = partial(store_in_unit, submission=submission, prepared=prepared)
    return await run_until_stored(store, unit, batch=True)


async def store_in_unit(
    tx: Tx, *, submission: NormalisedSubmission, prepared: Prepared, batch: bool
) -> StoreResult:
    """The unit of `store_submission`, or a part of one that does more."""
    prepared = prepared._replace(batch=batch)
    if submission.idempotency_key is None:
        result = await _find_and_store(tx, submission, prepared)
    else:
        result = await _store_if_key_is_new(tx, submission, prepared, submission.idempotency_key)
    if result.outcome == "duplicate":
        await counts.add(tx, submission.hotel.id, "duplicate")
    return result


async def _store_if_key_is_new(
    tx: Tx, submission: NormalisedSubmission, prepared: Prepared, key: str
) -> StoreResult:
    """Store it, unless a submission with this Idempotency-Key was stored before."""
    result: StoreResult | None = None

    async def find_and_store() -> str:
        nonlocal result
        result = await _find_and_store(tx, submission, prepared)
        return result.reservation_id

    scope = f"source:{submission.source_id}"
    reservation_id = await tx.remembered(scope, key, find_and_store, body_hash=submission.body_hash)
    return result or StoreResult(reservation_id, "duplicate")


async def _find_and_store(
    tx: Tx, submission: NormalisedSubmission, prepared: Prepared
) -> StoreResult:
    submission, existing = await find_existing(tx, submission, prepared)
    return await add_or_change(tx, submission, prepared, existing)


async def find_existing(
    tx: Tx, submission: NormalisedSubmission, prepared: Prepared
) -> tuple[NormalisedSubmission, Row | None]:
    """The submission with its external id, and the reservation that has this id already, or None.

    If the id is made of the content, the slot after counts, too: of two submissions the later one
    may be stored first.
    """
    if submission.external_id is not None:
        ids = [submission.external_id]
    elif submission.content_is_id:
        assert not prepared.batch
        received_at = tx.now_us if submission.received_at is None else submission.received_at
        slot = received_at // _SLOT_US
        ids = [
            blake2b(prepared.data.encode(), digest_size=12, salt=one.to_bytes(8, "big")).hexdigest()
            for one in (slot, slot - 1, slot + 1)
        ]
        locked = {"source_id": submission.source_id, "content": prepared.data}
        await tx.fetch_one("inbox_lock_content", **locked)
    else:
        return submission, None
    for external_id in ids:
        existing = await tx.fetch_one(
            "find_reservation", source_id=submission.source_id, external_id=external_id
        )
        if existing is not None:
            break
    else:
        external_id = ids[0]
    return msgspec.structs.replace(submission, external_id=external_id), existing


async def add_or_change(
    tx: Tx, submission: NormalisedSubmission, prepared: Prepared, existing: Row | None
) -> StoreResult:
    """Store it as a new reservation, or as the next version of the existing one, or find that it
    is a duplicate.

    `existing`: its reservation, as `find_existing` returns it. Raises: UnknownReservation,
    MustRunAlone, Conflict, StoreUnavailable.
    """
    if existing is None:
        return await _add_reservation(tx, submission, prepared)
    newness = submission.order.compare(existing)
    if newness < 0 or await _is_repeated(tx, submission, prepared, existing, is_newer=newness > 0):
        if newness > 0:
            await _write_order(tx, submission, existing["id"])
        if submission.mapped_by is not None:
            # Else the text would outlive a request that is erased or deleted meanwhile.
            held = {"id": existing["id"], "version": existing["version"]}
            await tx.write("hold_reservation", rows=1, **held)
            await _add_inbox(tx, submission, existing["id"], "duplicate")
        return StoreResult(str(existing["id"]), "duplicate")
    return await _change_reservation(tx, submission, prepared, existing)


async def _is_repeated(
    tx: Tx, submission: NormalisedSubmission, prepared: Prepared, existing: Row, *, is_newer: bool
) -> bool:
    """Whether it equals the newest version, or is a late repetition of a version before a
    cancellation. A cancellation is never such a repetition: it is about the newest version.
    """
    if existing["content_hash"] == prepared.content_hash:
        return True
    if is_newer or submission.data.status == "cancelled":
        return False
    values = {"id": existing["id"], "content_hash": prepared.content_hash}
    return await tx.fetch_one("find_ended", **values) is not None


async def _add_reservation(
    tx: Tx, submission: NormalisedSubmission, prepared: Prepared
) -> StoreResult:
    """Version 1 of a new reservation."""
    if not submission.may_create:
        raise UnknownReservation
    data, order = submission.data, submission.order
    customer_id = await _find_customer(tx, submission, prepared, data)
    columns = {
        "id": prepared.id,
        "hotel_id": submission.hotel.id,
        "source_id": submission.source_id,
        "external_id": submission.external_id,
        "version": 1,
        "status": data.status,
        "ends_on": ends_on(data),
        "sequence": order.sequence,
        "sent_at": order.sent_at,
        "created_at": tx.now_us,
        "changed_at": tx.now_us,
    }
    if customer_id is None:
        email = data.email.lower()
        await tx.write("insert_reservation_of_new_customer", rows=1, email=email, **columns)
    else:
        await tx.insert("reservation", customer_id=customer_id, **columns)
    await _add_inbox(tx, submission, prepared.id, "new")
    res_status = next_res_status(data.status, None)
    await _add_version(tx, submission, prepared, prepared.id, 1, res_status)
    return StoreResult(prepared.id, "new")


async def _change_reservation(
    tx: Tx, submission: NormalisedSubmission, prepared: Prepared, existing: Row
) -> StoreResult:
    """The next version of an existing reservation."""
    received = data = submission.data
    if received.status == "cancelled":
        data = carry_over(decode(existing["data"]), received)
        prepared = prepared._replace(data=encode(data).decode())
    customer_id = existing["customer_id"]
    if received.email or received.phone or customer_id is None:
        customer_id = await _find_customer(tx, submission, prepared, data)
        if customer_id is None:
            raise MustRunAlone  # the batch inserts the customer later: its id is not known yet
    reservation_id, number = str(existing["id"]), int(existing["version"]) + 1
    await tx.write(  # no row: retention has just deleted it; the next run stores a new one
        "update_reservation",
        rows=1,
        id=reservation_id,
        version=number,
        status=received.status,
        customer_id=customer_id,
        ends_on=ends_on(data),
        now=tx.now_us,
    )
    await _add_inbox(tx, submission, reservation_id, "changed")
    res_status = next_res_status(received.status, existing["status"])
    await _add_version(tx, submission, prepared, reservation_id, number, res_status)
    await _write_order(tx, submission, reservation_id)
    return StoreResult(reservation_id, "changed")


async def _find_customer(
    tx: Tx, submission: NormalisedSubmission, prepared: Prepared, data: ReservationData
) -> int | None:
    """The customer of the data of a version. Fields that were carried over do not change the
    customer, who may have given newer ones since.
    """
    received_at = submission.received_at
    return await find_or_create(
        tx,
        submission.hotel.id,
        data,
        received=submission.data,
        received_at=tx.now_us if received_at is None else received_at,
        batch=prepared.batch,
    )


async def _write_order(tx: Tx, submission: NormalisedSubmission, reservation_id: str) -> None:
    order = submission.order
    if order != SubmissionOrder():
        values = {"sequence": order.sequence, "sent_at": order.sent_at}
        await tx.write("note_order", id=reservation_id, **values)


async def _add_inbox(
    tx: Tx,
    submission: NormalisedSubmission,
    reservation_id: str,
    outcome: Literal["new", "changed", "duplicate"],
) -> None:
    """Insert the row of the inbox, unless it is there already.

    On PostgreSQL the row locks its source, so that a grant of the hotel to an account waits for it
    (accounts.py): so it is inserted before the deliveries.
    """
    if submission.inbox_id is not None:
        return
    await tx.insert(
        "inbox",
        source_id=submission.source_id,
        external_id=submission.external_id,
        received_at=tx.now_us if submission.received_at is None else submission.received_at,
        headers=submission.headers,
        body=submission.body,
        state="mapped",
        reservation_id=reservation_id,
        request_id=submission.request_id,
        outcome=outcome,
        handled_at=tx.now_us,
    )


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """A version to add; the row of its reservation has its number already."""

    reservation_id: str
    number: int
    hotel_id: int
    source_id: int
    status: Status
    res_status: ResStatus
    #: JSON of the ReservationData.
    data: str
    #: Hash of the source's data: the same data again is a duplicate.
    content_hash: bytes
    request_id: str
    #: Whether guest requests of the hotel are pushed to hotel software, or may be.
    pushed: bool = True


async def _add_version(
    tx: Tx,
    submission: NormalisedSubmission,
    prepared: Prepared,
    reservation_id: str,
    number: int,
    res_status: ResStatus,
) -> None:
    """Add the version of a submission, and to the history how its fields were mapped."""
    version = Version(
        reservation_id=reservation_id,
        number=number,
        hotel_id=submission.hotel.id,
        source_id=submission.source_id,
        status=submission.data.status,
        res_status=res_status,
        data=prepared.data,
        content_hash=prepared.content_hash,
        request_id=submission.request_id,
        pushed=submission.hotel.pushed,
    )
    await add_version(tx, version)
    if submission.mapped_by is not None:
        entry = history.HistoryEntry(
            reservation_id=reservation_id,
            version=number,
            event="mapped",
            detail=submission.mapped_by,
            request_id=submission.request_id,
        )
        await history.add(tx, entry)


async def add_version(tx: Tx, version: Version) -> None:
    """Add a version (also an entry of the history), its deliveries and its events."""
    reservation_id = version.reservation_id
    await tx.insert(
        "reservation_version",
        reservation_id=reservation_id,
        version=version.number,
        content_hash=version.content_hash,
        res_status=version.res_status,
        data=version.data,
        request_id=version.request_id,
        created_at=tx.now_us,
    )
    if version.number > 1:
        await tx.write("end_waiting", reservation_id=reservation_id)
    await tx.write(
        "fan_out",
        reservation_id=reservation_id,
        version=version.number,
        hotel_id=version.hotel_id,
        unique_id_type=unique_id_type(version.status),
    )
    kind = "modified"
    if version.number == 1:
        kind = "received"
    elif version.status == "cancelled":
        kind = "cancelled"
    payload = {
        "reservation_id": reservation_id,
        "version": version.number,
        "hotel_id": version.hotel_id,
        "source_id": version.source_id,
        "status": version.status,
    }  # ids only, no personal data in events
    await tx.publish(f"reservation.{kind}", payload, key=reservation_id)
    if version.pushed:
        await tx.publish("push.wanted", {"hotel_id": version.hotel_id})


def ends_on(data: ReservationData) -> str | None:
    """`reservation.ends_on`: the last day on which it is delivered to a new account."""
    return None if data.departure is None else data.departure.isoformat()


def carry_over(before: ReservationData, now: ReservationData) -> ReservationData:
    """A cancellation, with the fields that it lacks taken from the version before it."""
    given_fields = {
        f.name: value
        for f in msgspec.structs.fields(now)
        if (value := getattr(now, f.name)) is False or value  # False is an answer, not missing
    }
    if now.arrival is None or now.departure is None:  # the stay only as a whole
        given_fields |= {"arrival": before.arrival, "departure": before.departure}
    return msgspec.structs.replace(before, **given_fields)
