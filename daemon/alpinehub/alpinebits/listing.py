"""What waits for an account, rendered, recorded as sent before it is sent.

    version made --> waiting --read--> sent, waiting --ack or refusal--> taken
                        |  ^             |  ^
                        |  |held         |  |read again
                        +--+             +--+

Each first reading, acknowledgement and refusal is an event of its own, written in the same unit.
The state is an account's own: two accounts of one hotel each read and acknowledge for themselves. A
newer version waits anew whatever became of the older one, and what an operator resends waits as if
it had not been sent; what the operator takes back is in no list (`requests/actions.py`).

What an account is given depends on what that account was given before, that is, on what was in an
answer, acknowledged or not: the answer may have arrived though the acknowledgement did not. A
booking is Reserved until it was given as one and Modify afterwards; a cancellation is given only to
an account who was given the request. All of it is read when the list is made (`sql/*/listing.sql`).
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import msgspec

from alpinehub.alpinebits.delivery import Sent, UndeliverableVersion, mark_sent, mark_undeliverable
from alpinehub.alpinebits.guest import (
    Record,
    Undeliverable,
    UndeliverableCode,
    find_invalid,
    mark,
    render,
)
from alpinehub.reservations import decode
from cordata import Context, Row, Tx, from_us

if TYPE_CHECKING:
    from alpinehub.alpinebits.call import Client
    from alpinehub.alpinebits.protocol import Protocol
    from alpinehub.models import Hotel

#: Rows read, rendered, checked and recorded at once; between pages the loop serves others (6 ms),
#: and webhooks write. In memory is never more than this, whatever waits: 250 KB.
PAGE = 100
#: Ids told in an alert.
_TOLD = 5

_log = logging.getLogger("alpinehub.alpinebits")


@dataclass(slots=True)
class Batch:
    """What a page holds, and what it leaves out."""

    xml: list[bytes] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    #: Where the reason is new.
    held: list[UndeliverableVersion] = field(default_factory=list)

    def add(self, rows: Sequence[Row], hotel: Hotel, protocol: Protocol) -> None:
        """Render and check some rows; what cannot be sent is held, and the others go on."""
        made = [(row, xml) for row in rows if (xml := self.render(row, hotel, protocol))]
        unproven = [(row, xml) for row, xml in made if row["rendered"] != mark(protocol)]
        invalid = find_invalid([xml for _, xml in unproven], protocol)
        held = {unproven[index][0]["reservation_id"]: text for index, text in invalid.items()}
        for row, xml in made:
            reservation_id = row["reservation_id"]
            if text := held.get(reservation_id):
                self._hold(row, UndeliverableCode.SCHEMA, text)
                continue
            self.xml.append(xml)
            self.sent.append(
                Sent(
                    reservation_id=reservation_id,
                    version=row["version"],
                    unique_id_type=15 if row["res_status"] == "Cancelled" else 14,
                    proven=row["rendered"] != mark(protocol),
                    last_sent_at=row["last_sent_at"],
                )
            )

    def render(self, row: Row, hotel: Hotel, protocol: Protocol) -> bytes | None:
        """One of them, not checked yet; None: it is held."""
        try:
            return render(record_of(row), hotel, protocol)
        except Undeliverable as reason:
            self._hold(row, reason.code, str(reason))
        except Exception:  # noqa: BLE001 - the boundary of one record: a mistake of ours
            text = "the renderer failed; the journal has the details"
            if self._hold(row, UndeliverableCode.RENDERER, text):
                # The details; it is `tell_undeliverable` that tells of it.
                words = "reservation %s cannot be rendered"
                _log.warning(words, row["reservation_id"], exc_info=True)
        return None

    def _hold(self, row: Row, code: UndeliverableCode, text: str) -> bool:
        """Whether this reason is news."""
        if (code, text) == (row["undeliverable_code"], row["undeliverable_text"]):
            return False
        self.held.append(
            UndeliverableVersion(
                reservation_id=row["reservation_id"], version=row["version"], code=code, text=text
            )
        )
        return True


def record_of(row: Row) -> Record:
    """What a version is rendered from. Raises: Undeliverable."""
    try:
        data = decode(row["data"])
    except msgspec.DecodeError:
        raise Undeliverable(
            UndeliverableCode.UNREADABLE, "the stored record cannot be read"
        ) from None
    return Record(
        id=row["reservation_id"],
        res_status=row["res_status"],
        data=data,
        external_id=row["external_id"] or "",
        source=row["source"],
        created_at=row["created_at"],
        changed_at=row["changed_at"],
    )


async def reservations(
    ctx: Context,
    client: Client,
    hotel: Hotel,
    *,
    since_us: int | None = None,
    size: int = PAGE,
    after_id: str = "",
    sent: list[Sent] | None = None,
) -> AsyncGenerator[list[bytes], None]:
    """Pages of HotelReservations, each recorded as sent before it is given.

    `since_us`: all created since then; None: all that wait, behind `after_id`. `sent`: where what
    the page in hand holds is told. Raises:
    StoreUnavailable, with nothing recorded of the page. A page that is lost afterwards is no loss:
    what is not acknowledged comes again. A version made meanwhile is in a later page, or in the
    next list.
    """
    after_at = since_us or 0  # no id is "": the moment itself is included
    while True:
        where: dict[str, str | int] = {}
        if since_us is not None:
            today = from_us(ctx.now_us()).astimezone(ZoneInfo(hotel.time_zone)).date()
            where = {"after_at": after_at, "today": today.isoformat()}
        rows = await _page(ctx, client.account_id, hotel.id, after_id=after_id, limit=size, **where)
        batch = Batch()
        batch.add(rows, hotel, client.protocol)
        await _record_page(ctx, client, hotel, batch)
        if sent is not None:
            sent[:] = batch.sent
        yield batch.xml
        if len(rows) < size:
            return
        after_id, after_at = rows[-1]["reservation_id"], rows[-1]["created_at"]


async def _record_page(ctx: Context, client: Client, hotel: Hotel, batch: Batch) -> None:
    async def unit(tx: Tx) -> list[UndeliverableVersion]:
        await mark_sent(tx, client, hotel, batch.sent)
        return await mark_undeliverable(tx, client, batch.held)

    if batch.sent or batch.held:
        tell_undeliverable(ctx, hotel, client.protocol, await ctx.store.run(unit))


async def _page(ctx: Context, account_id: int, hotel_id: int, **where: str | int) -> list[Row]:
    async def unit(tx: Tx) -> list[Row]:
        who = {"account_id": account_id, "hotel_id": hotel_id}
        if "after_at" in where:
            return await tx.fetch_all("listing_selected", **who, **where)
        return await tx.fetch_all("listing_waiting", **who, **where)

    return await ctx.store.read(unit)


def tell_undeliverable(
    ctx: Context, hotel: Hotel, protocol: Protocol, held: Sequence[UndeliverableVersion]
) -> None:
    """An alert for each cause, which is a line in the journal; the trail has each of them."""
    causes: defaultdict[UndeliverableCode, list[UndeliverableVersion]] = defaultdict(list)
    for one in held:
        causes[one.code].append(one)
    for code, ones in causes.items():
        ids = ", ".join(one.reservation_id for one in ones[:_TOLD])
        more = ", ..." if len(ones) > _TOLD else ""
        many = "1 guest request" if len(ones) == 1 else f"{len(ones)} guest requests"
        ctx.alert(
            f"undeliverable:{hotel.code}:{code.value}",
            f"{many} of hotel {hotel} held back, AlpineBits {protocol.name} cannot carry "
            f"this: {ones[0].text} ({ids}{more}); "
            f"see: alpinehub requests list --hotel {hotel.code} --state undeliverable",
            ids=[hotel.code],
        )
