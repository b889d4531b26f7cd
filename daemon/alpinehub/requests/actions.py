"""Actions of an operator on a guest request: send it again, stop its delivery, cancel it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from alpinehub import history
from alpinehub.accounts import require_account
from alpinehub.history import HistoryEntry
from alpinehub.hotels import Unusable
from alpinehub.intake import Version, add_version, ends_on
from alpinehub.requests.listing import state_of, unknown
from alpinehub.reservations import ReservationData, decode, encode, unique_id_type
from alpinehub.sql import encode_list
from cordata import Row, Store, Tx


@dataclass(frozen=True, slots=True)
class ActionResult:
    """The version and the accounts that an action concerned."""

    version: int
    accounts: Sequence[str]


async def resend(store: Store, request_id: str, *, account: str | None, by: str) -> ActionResult:
    """Deliver the newest version again, to one account or all of the hotel; an acknowledgement or
    rejection is deleted, but stays in the history. Nothing changes for an account for which it
    still waits, nor for a cancellation if the account never received the request.

    Raises: Unusable, StoreUnavailable.
    """

    async def unit(tx: Tx) -> ActionResult:
        request = await _hold(tx, request_id)
        if request["erased_at"] is not None:
            raise Unusable(
                f"guest request {request_id} was erased: it has no guest data to send",
                hint="a new submission of the guest is a new guest request",
            )
        before = await _newest(tx, request)
        chosen = await _readers(tx, request, account)
        if chosen is None:
            await tx.write("requests_withdraw", id=request_id, at=None)
        rows = await tx.fetch_all(
            "requests_resend",
            id=request_id,
            account_id=chosen,
            unique_id_type=unique_id_type(request["status"]),
        )
        again = []
        for row in rows:
            known = before.get(row["account_id"])
            detail = {"by": by}
            if known is not None and not known["waiting"]:  # else it ended after it was read
                detail["was"] = state_of(known)
                if known["rejected_text"]:
                    detail["text"] = known["rejected_text"]
            await _note(tx, request, "resent", detail, account_id=row["account_id"])
            again.append(str(row["account"]))
        return ActionResult(request["version"], sorted(again))

    return await store.run(unit)


async def cancel(store: Store, request_id: str, *, account: str | None, by: str) -> ActionResult:
    """Stop the delivery of the newest version, to one account or all of the hotel. If to all, it is
    not delivered to accounts that are added later, either.

    Raises: Unusable, StoreUnavailable.
    """

    async def unit(tx: Tx) -> ActionResult:
        request = await _hold(tx, request_id)
        chosen = await _readers(tx, request, account)
        rows = await tx.fetch_all(
            "requests_cancel", id=request_id, account_id=chosen, now_us=tx.now_us
        )
        if chosen is None:
            await tx.write("requests_withdraw", id=request_id, at=tx.now_us)
        for row in rows:
            await _note(tx, request, "withdrawn", {"by": by}, account_id=row["account_id"])
        names = await _newest(tx, request)
        return ActionResult(
            request["version"], sorted(str(names[r["account_id"]]["account"]) for r in rows)
        )

    return await store.run(unit)


async def cancel_at_hotel(store: Store, request_id: str, *, by: str) -> ActionResult:
    """Add a cancellation as a new version. It is delivered to the accounts that received the
    request, because their software may have stored it. Raises: Unusable, StoreUnavailable.
    """

    async def unit(tx: Tx) -> ActionResult:
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
        await tx.write(
            "update_reservation",
            id=request_id,
            version=version,
            status="cancelled",
            customer_id=request["customer_id"],
            ends_on=ends_on(data),
            now=tx.now_us,
        )
        entry = HistoryEntry(
            reservation_id=request_id, version=version, event="withdrawn", detail={"by": by}
        )
        await history.add(tx, entry)
        cancellation = Version(
            reservation_id=request_id,
            number=version,
            hotel_id=request["hotel_id"],
            source_id=request["source_id"],
            status="cancelled",
            res_status="Cancelled",
            data=encode(data).decode(),
            content_hash=found["content_hash"],
            request_id="",
        )
        await add_version(tx, cancellation)
        accounts = await tx.fetch_all("requests_waiting", id=request_id)
        return ActionResult(version, [row["account"] for row in accounts])

    return await store.run(unit)


async def _hold(tx: Tx, request_id: str) -> Row:
    """The reservation; it and the grants of its hotel are locked until the end of the unit."""
    row = await tx.fetch_one("requests_hold", id=request_id, lock=True)
    if row is None:
        raise unknown(request_id)
    return row


async def _readers(tx: Tx, request: Row, account: str | None) -> int | None:
    """The id of the account; None: all accounts. Raises: Unusable if it does not read the hotel."""
    if account is None:
        return None
    account_id = await require_account(tx, account)
    readers = await tx.fetch_all("requests_readers", hotel_id=request["hotel_id"])
    if account_id not in {row["account_id"] for row in readers}:
        names = ", ".join(row["account"] for row in readers) or "none"
        raise Unusable(
            f"account {account!r} does not read this hotel", hint=f"accounts that do: {names}"
        )
    return account_id


async def _newest(tx: Tx, request: Row) -> dict[int, Row]:
    """The deliveries of the newest version, by account."""
    rows = await tx.fetch_all("requests_deliveries", ids=encode_list([request["id"]]))
    return {row["account_id"]: row for row in rows if row["version"] == request["version"]}


async def _note(
    tx: Tx, request: Row, event: str, detail: dict[str, str], *, account_id: int
) -> None:
    row = HistoryEntry(
        reservation_id=request["id"],
        version=request["version"],
        event=event,
        account_id=account_id,
        detail=detail,
    )
    await history.add(tx, row)
