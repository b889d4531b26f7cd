"""What an operator does to a guest request: send it again, take it from the list, cancel it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from alpinehub import trail
from alpinehub.hotels import Unusable
from alpinehub.intake import ends_on
from alpinehub.requests.looking import state_of, unknown
from alpinehub.reservations import ReservationData, decode, encode
from alpinehub.trail import TrailRow
from alpinehub.users import require_user
from cordata import Row, Store, Tx


@dataclass(frozen=True, slots=True)
class Change:
    """What was done, for which users."""

    version: int
    users: Sequence[str]


async def resend(store: Store, request_id: str, *, user: str | None, by: str) -> Change:
    """Let the newest version wait again, for one user or all of the hotel; an acknowledgement or
    a refusal is forgotten, but for the trail. What waits anyway is left as it is, and so is a
    cancellation for users who never got the request.

    Raises: Unusable, StoreUnavailable.
    """

    async def unit(tx: Tx) -> Change:
        request = await _hold(tx, request_id)
        if request["erased_at"] is not None:
            raise Unusable(
                f"guest request {request_id} was erased: there is no guest in it to be sent",
                hint="when the guest writes again, the hotel gets that",
            )
        before = await _newest(tx, request)
        chosen = await _readers(tx, request, user)
        if chosen is None:
            await tx.write("requests_withdraw", id=request_id, at=None)
        rows = await tx.fetch_all(
            "requests_resend",
            id=request_id,
            user_id=chosen,
            unique_id_type=15 if request["status"] == "cancelled" else 14,
        )
        again = []
        for row in rows:
            known = before.get(row["user_id"])
            detail = {"by": by}
            if known is not None and not known["waiting"]:  # else it ended since it was read
                detail["was"] = state_of(known)
                if known["refused_text"]:
                    detail["text"] = known["refused_text"]
            await _note(tx, request, "resent", detail, user_id=row["user_id"])
            again.append(str(row["user"]))
        return Change(request["version"], sorted(again))

    return await store.run(unit)


async def cancel(store: Store, request_id: str, *, user: str | None, by: str) -> Change:
    """Take the newest version from the list of one user, or of all: it waits no more. Where it is
    all, it is not given to users who come later, either.

    Raises: Unusable, StoreUnavailable.
    """

    async def unit(tx: Tx) -> Change:
        request = await _hold(tx, request_id)
        chosen = await _readers(tx, request, user)
        rows = await tx.fetch_all(
            "requests_cancel", id=request_id, user_id=chosen, now_us=tx.now_us
        )
        if chosen is None:
            await tx.write("requests_withdraw", id=request_id, at=tx.now_us)
        for row in rows:
            await _note(tx, request, "withdrawn", {"by": by}, user_id=row["user_id"])
        names = await _newest(tx, request)
        return Change(request["version"], sorted(str(names[r["user_id"]]["user"]) for r in rows))

    return await store.run(unit)


async def cancel_at_hotel(store: Store, request_id: str, *, by: str) -> Change:
    """Make a cancellation of it, a version of its own that goes out to the users of the hotel who
    were given the request: their software may have taken it. Raises: Unusable, StoreUnavailable.
    """

    async def unit(tx: Tx) -> Change:
        request = await _hold(tx, request_id)
        if request["status"] == "cancelled":
            raise Unusable(f"guest request {request_id} is cancelled already")
        found = await tx.fetch_one("requests_data", id=request_id, version=request["version"])
        assert found is not None
        try:
            data = msgspec.structs.replace(decode(found["data"]), status="cancelled")
        except msgspec.DecodeError:
            data = ReservationData(status="cancelled")
        version = request["version"] + 1
        await _add_version(tx, request, version, data, found["content_hash"])
        payload = {
            "reservation_id": request_id,
            "version": version,
            "hotel_id": request["hotel_id"],
            "source_id": request["source_id"],
            "status": "cancelled",
        }
        await tx.publish("reservation.cancelled", payload, key=request_id)
        row = TrailRow(
            reservation_id=request_id, version=version, event="withdrawn", detail={"by": by}
        )
        await trail.add(tx, row)
        users = await tx.fetch_all("requests_waiting", id=request_id)
        return Change(version, [row["user"] for row in users])

    return await store.run(unit)


async def _add_version(
    tx: Tx, request: Row, version: int, data: ReservationData, content_hash: bytes
) -> None:
    """`content_hash`: of what the source said last, so that the same once more says nothing."""
    await tx.write(
        "update_reservation",
        id=request["id"],
        version=version,
        status="cancelled",
        customer_id=request["customer_id"],
        ends_on=ends_on(data),
        now=tx.now_us,
    )
    await tx.write(
        "insert_version",
        reservation_id=request["id"],
        version=version,
        content_hash=content_hash,
        res_status="Cancelled",
        data=encode(data).decode(),
        request_id="",
        now=tx.now_us,
    )
    await tx.write("end_waiting", reservation_id=request["id"])
    await tx.write(
        "fan_out",
        reservation_id=request["id"],
        version=version,
        hotel_id=request["hotel_id"],
        unique_id_type=15,
    )


async def _hold(tx: Tx, request_id: str) -> Row:
    """The reservation, which nobody changes until the end of the unit, nor who reads its hotel."""
    row = await tx.fetch_one("requests_hold_source", id=request_id)
    if row is not None:
        row = await tx.fetch_one("requests_hold", id=request_id)
    if row is None:
        raise unknown(request_id)
    return row


async def _readers(tx: Tx, request: Row, user: str | None) -> int | None:
    """The id of the one that is meant; None: all. Raises: Unusable."""
    if user is None:
        return None
    user_id = await require_user(tx, user)
    readers = await tx.fetch_all("requests_readers", hotel_id=request["hotel_id"])
    if user_id not in {row["user_id"] for row in readers}:
        names = ", ".join(row["user"] for row in readers) or "nobody"
        raise Unusable(f"user {user!r} does not read this hotel", hint=f"those who do: {names}")
    return user_id


async def _newest(tx: Tx, request: Row) -> dict[int, Row]:
    """The deliveries of the newest version, by user."""
    rows = await tx.fetch_all("requests_deliveries", id=request["id"])
    return {row["user_id"]: row for row in rows if row["version"] == request["version"]}


async def _note(tx: Tx, request: Row, event: str, detail: dict[str, str], *, user_id: int) -> None:
    row = TrailRow(
        reservation_id=request["id"],
        version=request["version"],
        event=event,
        user_id=user_id,
        detail=detail,
    )
    await trail.add(tx, row)
