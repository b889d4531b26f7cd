"""What waits for a user, rendered, recorded as sent before it is sent; and his acknowledgements.

    version made --> waiting --read--> sent, waiting --ack or refusal--> taken
                        |  ^             |  ^
                        |  |held         |  |read again
                        +--+             +--+

Each first reading, acknowledgement and refusal is an event of its own, written in the same unit.
The state is a user's own: two users of one hotel each read and acknowledge for themselves. A
newer version waits anew whatever became of the older one.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from alpinehub.alpinebits.message import Acknowledgement
from alpinehub.alpinebits.render import Held, Record, render
from alpinehub.alpinebits.version import Version
from alpinehub.reservations import decode
from cordata import Context, Row, Tx, fields

if TYPE_CHECKING:
    from alpinehub.directory import Hotel

#: Rows read and rendered at once; between pages the loop serves others (2 ms of rendering).
PAGE = 100
#: Guest requests in one response; what is beyond comes when these are acknowledged. 15 MB.
MAX_RECORDS = 10_000
#: Guest requests recorded in one unit, with an event for each: a few milliseconds.
RECORDED = 200

_log = logging.getLogger("alpinehub.alpinebits")
_encode = msgspec.json.encode


@dataclass(slots=True)
class Batch:
    """What one response holds, and what it leaves out."""

    xml: list[bytes] = field(default_factory=list)
    #: (reservation id, version, unique id type)
    sent: list[tuple[str, int, int]] = field(default_factory=list)
    #: (reservation id, version, reason), where the reason is new.
    held: list[tuple[str, int, str]] = field(default_factory=list)

    def add(self, row: Row, hotel: Hotel, version: Version) -> None:
        """Render one row; when it cannot be, hold it and go on with the others."""
        reservation_id, number = row["reservation_id"], row["version"]
        try:
            self.xml.append(render(_record(row), hotel, version))
        except Held as reason:
            self._hold(row, str(reason))
        except Exception:  # noqa: BLE001 - the boundary of one record: a mistake of ours
            if self._hold(row, "the renderer failed; the journal has the details"):
                _log.exception("reservation %s cannot be rendered", reservation_id)
        else:
            unique_id_type = 15 if row["res_status"] == "Cancelled" else 14
            self.sent.append((reservation_id, number, unique_id_type))

    def _hold(self, row: Row, reason: str) -> bool:
        """Whether this reason is news."""
        if reason == row["held_text"]:
            return False
        self.held.append((row["reservation_id"], row["version"], reason))
        return True


def _record(row: Row) -> Record:
    try:
        data = decode(row["data"])
    except msgspec.DecodeError:
        raise Held("the stored record cannot be read") from None
    return Record(
        id=row["reservation_id"],
        res_status=row["res_status"],
        data=data,
        external_id=row["external_id"] or "",
        source=row["source"],
        created_at=row["created_at"],
        changed_at=row["changed_at"],
    )


async def fetch(
    ctx: Context, user_id: int, hotel: Hotel, version: Version, *, since_us: int | None
) -> list[bytes]:
    """The HotelReservations for one response, already recorded as sent.

    `since_us`: all created since then; None: all that wait. Raises: StoreUnavailable, with nothing
    recorded. A response that is lost afterwards is no loss: what is not acknowledged comes again.
    """
    batch = Batch()
    after_id, after_at = "", since_us or 0  # no id is "": the moment itself is included
    while len(batch.xml) < MAX_RECORDS:
        rows = await _page(ctx, user_id, hotel.id, since_us is not None, after_at, after_id)
        for row in rows:
            batch.add(row, hotel, version)
        if len(rows) < PAGE:
            break
        after_id, after_at = rows[-1]["reservation_id"], rows[-1]["created_at"]
    await _record_batch(ctx, user_id, hotel, batch)
    _log_held(hotel, version, batch)
    return batch.xml


async def _page(
    ctx: Context, user_id: int, hotel_id: int, selected: bool, after_at: int, after_id: str
) -> list[Row]:
    async def unit(tx: Tx) -> list[Row]:
        if selected:
            return await tx.fetch_all(
                "selected_reservations",
                user_id=user_id,
                hotel_id=hotel_id,
                after_at=after_at,
                after_id=after_id,
                limit=PAGE,
            )
        return await tx.fetch_all(
            "waiting_reservations",
            user_id=user_id,
            hotel_id=hotel_id,
            after_id=after_id,
            limit=PAGE,
        )

    return await ctx.store.read(unit)


async def _record_batch(ctx: Context, user_id: int, hotel: Hotel, batch: Batch) -> None:
    """In units of RECORDED: webhooks get their turn between them. All before anything is sent."""
    for start in range(0, len(batch.sent), RECORDED):
        await ctx.store.run(
            partial(_mark_sent, user_id, hotel, batch.sent[start : start + RECORDED])
        )
    if batch.held:
        await ctx.store.run(partial(_mark_held, user_id, batch.held))


async def _mark_sent(
    user_id: int, hotel: Hotel, sent: Sequence[tuple[str, int, int]], tx: Tx
) -> None:
    rows = await tx.fetch_all(
        "mark_sent", user_id=user_id, sent=_encode(sent).decode(), now_us=tx.now_us
    )
    for row in rows:
        if row["first_sent_at"] == tx.now_us:
            await _publish(tx, "delivered", row, hotel.id, user_id)


async def _mark_held(user_id: int, held: Sequence[tuple[str, int, str]], tx: Tx) -> None:
    for reservation_id, number, reason in held:
        await tx.write(
            "mark_held",
            user_id=user_id,
            reservation_id=reservation_id,
            version=number,
            held_text=reason,
        )


async def _publish(tx: Tx, event: str, row: Row, hotel_id: int, user_id: int) -> None:
    """Ids only: whoever handles it reads what he is allowed to read."""
    await tx.publish(
        f"reservation.{event}",
        {
            "reservation_id": row["reservation_id"],
            "version": row["version"],
            "hotel_id": hotel_id,
            "user_id": user_id,
        },
        key=row["reservation_id"],
    )


def _log_held(hotel: Hotel, version: Version, batch: Batch) -> None:
    for reservation_id, number, reason in batch.held:
        _log.warning(
            "guest request %s version %d of hotel %s is held: AlpineBits %s cannot carry it: %s",
            *(reservation_id, number, hotel.code, version.name, reason),
            extra=fields(hotel=hotel.code, reservation=reservation_id),
        )


async def acknowledge(ctx: Context, user_id: int, told: Acknowledgement) -> Sequence[str]:
    """Record what a user took and what he refused; the IDs that were never sent to him.

    Saying the same again changes nothing. Raises: StoreUnavailable, with nothing recorded.
    """
    if not (told.accepted or told.refused):
        return ()
    accepted = _encode([(int(kind), unique_id) for kind, unique_id in told.accepted]).decode()
    refused = _encode(list(told.refused.items())).decode()

    async def unit(tx: Tx) -> tuple[set[tuple[str, str]], dict[str, bool]]:
        who = {"user_id": user_id, "now_us": tx.now_us}
        taken = await tx.fetch_all("acknowledge", accepted=accepted, **who)
        declined = await tx.fetch_all("refuse", refused=refused, **who) if told.refused else []
        for event, rows in (("acknowledged", taken), ("refused", declined)):
            for row in rows:
                if row["acked_at"] == tx.now_us:
                    await _publish(tx, event, row, row["hotel_id"], user_id)
        return (
            {(str(row["unique_id_type"]), row["reservation_id"]) for row in taken},
            {row["reservation_id"]: row["acked_at"] == tx.now_us for row in declined},
        )

    taken, declined = await ctx.store.run(unit)
    if new := [unique_id for unique_id, is_new in declined.items() if is_new]:
        ids = ", ".join(new[:20]) + (", ..." if len(new) > 20 else "")
        text = f"hotel software of user {user_id} refused {len(new)} guest requests: {ids}"
        ctx.alert("refused-by-hotel", text)
    unknown = [unique_id for kind, unique_id in told.accepted if (kind, unique_id) not in taken]
    unknown += [unique_id for unique_id in told.refused if unique_id not in declined]
    return list(dict.fromkeys(unknown))
