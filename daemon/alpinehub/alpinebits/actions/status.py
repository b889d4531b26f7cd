"""OTA_HotelResNotif:GuestRequests_StatusUpdate: the status of guest requests at the hotel.

The status is stored with the request and makes no new version of it: the hotel already knows it,
and its other client accounts do not get it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from alpinehub.alpinebits.call import Call, Recipient, ResponseBody, read
from alpinehub.alpinebits.contact import note_contact
from alpinehub.alpinebits.document import escape_attribute, tag
from alpinehub.alpinebits.guest_requests import STEP, add_history
from alpinehub.alpinebits.moment import moment_us
from alpinehub.alpinebits.outcome import UNABLE, Finding, MessageRejected, Outcome, error
from alpinehub.alpinebits.reader import Reader
from alpinehub.models import Hotel
from alpinehub.sql import encode_list
from cordata import Row, Tx

if TYPE_CHECKING:
    from lxml.etree import _Element

_UNKNOWN = "no guest request of this account's hotels has this ID"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusUpdate:
    """One HotelReservation of an OTA_HotelResNotifRQ."""

    kind: str
    id: str
    status: str
    #: The time of the change, an xs:dateTime as written.
    at: str


def _read(root: _Element) -> list[StatusUpdate]:
    return [
        StatusUpdate(
            kind=one[0].get("Type", ""),
            id=one[0].get("ID", ""),
            status=one.get("ResStatus", ""),
            at=one.get("LastModifyDateTime") or one.get("CreateDateTime") or "",
        )
        for one in root.iter(tag("HotelReservation"))
    ]


STATUSES = Reader(root="OTA_HotelResNotifRQ", read=_read)


async def update_statuses(call: Call) -> ResponseBody:
    """Success with all IDs, and an advisory for each unknown one. It is not an error, because hotel
    software would repeat the update for ever.

    An update that is older than the stored status, or the same, changes nothing. Raises:
    MessageRejected; StoreUnavailable; then a part of the updates may be recorded, which is
    recognized when they come again.
    """
    updates = await read(call, STATUSES)
    if not updates:
        raise MessageRejected(error(UNABLE, "there is no HotelReservation"))
    hotels = {one.id: one for one in call.account.hotels if one.offers("status_update")}
    known: set[str] = set()
    for start in range(0, len(updates), STEP):
        part = updates[start : start + STEP]
        known |= await call.ctx.store.run(
            partial(_record, recipient=call.recipient, hotels=hotels, updates=part)
        )
    unknown = dict.fromkeys(one.id for one in updates if one.id not in known)
    notes = (
        Finding(kind="advisory", code=UNABLE, text=_UNKNOWN, record=record) for record in unknown
    )
    content = "".join(
        f'<HotelReservation><UniqueID Type="{kind}" ID="{escape_attribute(name)}"/>'
        "</HotelReservation>"
        for kind, name in dict.fromkeys((one.kind, one.id) for one in updates)
    )
    content = f"<HotelReservations>{content}</HotelReservations>"
    return call.respond(Outcome(tuple(notes)), content)


async def _record(
    tx: Tx, recipient: Recipient, hotels: Mapping[int, Hotel], updates: Sequence[StatusUpdate]
) -> set[str]:
    """Record updates; returns the ids that are guest requests of these hotels."""
    ids = encode_list(sorted({one.id for one in updates}))
    rows = await tx.fetch_all("status_find", ids=ids, account_id=recipient.account_id, lock=True)
    found = {row["reservation_id"]: row for row in rows if row["hotel_id"] in hotels}
    for name, row in found.items():
        zone = hotels[row["hotel_id"]].zone
        # Times in the future (a client's wrong clock) must not prevail over later updates.
        stated = [
            (min(moment_us(one.at, zone), tx.now_us), place, one.status)
            for place, one in enumerate(updates)
            if one.id == name
        ]
        at, _, status = max(stated)
        if at >= (row["hotel_status_at"] or 0):
            await _set(tx, recipient, row, status, at)
    for hotel_id in sorted({row["hotel_id"] for row in found.values()}):
        await note_contact(tx, recipient, hotel_id)
    return set(found)


async def _set(tx: Tx, recipient: Recipient, row: Row, status: str, at: int) -> None:
    if (status, at) == (row["hotel_status"], row["hotel_status_at"]):
        return
    await tx.write("status_set", id=row["reservation_id"], status=status, at=at)
    if status != row["hotel_status"]:
        await add_history(tx, [row], "status", recipient, res_status=status)
