"""What became of guest requests at the hotel, as its software tells: reserved there, cancelled.

It is kept beside the request and is no version of it: the hotel knows what it said, and its other
software is not told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from alpinehub import history
from alpinehub.alpinebits.delivery import entry_of
from alpinehub.alpinebits.document import tag
from alpinehub.alpinebits.moment import moment_us
from alpinehub.alpinebits.reader import Reader

if TYPE_CHECKING:
    from lxml.etree import _Element

    from alpinehub.alpinebits.call import Client
    from alpinehub.models import Hotel
    from cordata import Context, Row, Tx

#: Recorded in one unit: webhooks get their turn between them.
RECORDED = 200

_RESERVATION = tag("HotelReservation")


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusUpdate:
    """One HotelReservation of an OTA_HotelResNotifRQ."""

    kind: str
    id: str
    status: str
    #: xs:dateTime as written: when it became so.
    at: str


@dataclass(frozen=True, slots=True)
class Statuses:
    """All of them, in their order."""

    told: tuple[StatusUpdate, ...]


def _read(root: _Element) -> Statuses:
    return Statuses(tuple(_told(root)))


def _told(root: _Element) -> Iterator[StatusUpdate]:
    for one in root.iter(_RESERVATION):
        yield StatusUpdate(
            kind=one[0].get("Type", ""),
            id=one[0].get("ID", ""),
            status=one.get("ResStatus", ""),
            at=one.get("LastModifyDateTime") or one.get("CreateDateTime") or "",
        )


STATUSES = Reader(root="OTA_HotelResNotifRQ", read=_read, type=Statuses)


async def note_statuses(
    ctx: Context, client: Client, hotels: Mapping[int, Hotel], told: Sequence[StatusUpdate]
) -> set[str]:
    """Record them; the ids that are requests of these hotels, which the account reads.

    What is older than what is known, and what says nothing new, changes nothing. Raises:
    StoreUnavailable; a part of them may be recorded then, and is known when they come again.
    """
    known: set[str] = set()
    for start in range(0, len(told), RECORDED):
        part = told[start : start + RECORDED]

        async def unit(tx: Tx, part: Sequence[StatusUpdate] = part) -> set[str]:
            return await _note(tx, client, hotels, part)

        known |= await ctx.store.run(unit)
    return known


async def _note(
    tx: Tx, client: Client, hotels: Mapping[int, Hotel], told: Sequence[StatusUpdate]
) -> set[str]:
    ids = msgspec.json.encode(sorted({one.id for one in told})).decode()
    rows = await tx.fetch_all("status_find", ids=ids, account_id=client.account_id)
    found = {row["reservation_id"]: row for row in rows if row["hotel_id"] in hotels}
    for name, row in found.items():
        zone = hotels[row["hotel_id"]].time_zone
        # A clock that is ahead must not outdo what is said later.
        said = [
            (min(moment_us(one.at, zone), tx.now_us), place, one.status)
            for place, one in enumerate(told)
            if one.id == name
        ]
        at, _, status = max(said)
        if at >= (row["hotel_status_at"] or 0):
            await _set(tx, client, row, status, at)
    return set(found)


async def _set(tx: Tx, client: Client, row: Row, status: str, at: int) -> None:
    if (status, at) == (row["hotel_status"], row["hotel_status_at"]):
        return
    await tx.write("status_set", id=row["reservation_id"], status=status, at=at)
    if status != row["hotel_status"]:
        await history.add(tx, entry_of(row, "status", client, res_status=status))
