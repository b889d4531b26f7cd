"""What is recorded of a page before it is sent: which versions, and which were held."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from alpinehub import history
from alpinehub.alpinebits.guest import mark
from alpinehub.history import HistoryEntry

if TYPE_CHECKING:
    from alpinehub.alpinebits.call import Client
    from alpinehub.alpinebits.guest import UndeliverableCode
    from alpinehub.models import Hotel
    from cordata import Row, Tx

_encode = msgspec.json.encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A version that goes out."""

    reservation_id: str
    version: int
    unique_id_type: int
    #: It was rendered in this form for the first time, and found valid.
    proven: bool
    #: When it went out before; None: never.
    last_sent_at: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UndeliverableVersion:
    """A version that the protocol of its account cannot carry."""

    reservation_id: str
    version: int
    code: UndeliverableCode
    #: For people.
    text: str


async def mark_sent(tx: Tx, client: Client, hotel: Hotel, sent: Sequence[Sent]) -> None:
    """Within a unit of the caller's; an event for each first time."""
    if not sent:
        return
    rows = await tx.fetch_all(
        "listing_mark_sent",
        account_id=client.account_id,
        sent=_encode(
            [(one.reservation_id, one.version, one.unique_id_type) for one in sent]
        ).decode(),
        rendered=mark(client.protocol),
        client_id=client.client_id or None,
        now_us=tx.now_us,
    )
    rendered = [_event(one, "rendered", client) for one in sent if one.proven]
    await history.add_once(tx, *rendered)
    for row in rows:
        if row["first_sent_at"] == tx.now_us:
            await history.add(tx, entry_of(row, "delivered", client))


async def mark_unsent(tx: Tx, client: Client, sent: Sequence[Sent]) -> None:
    """Within a unit of the caller's: it never left this machine, so the account did not get it."""
    unsent = [(one.reservation_id, one.version, one.last_sent_at) for one in sent]
    await tx.execute(
        "listing_mark_unsent", account_id=client.account_id, unsent=_encode(unsent).decode()
    )


async def mark_undeliverable(
    tx: Tx, client: Client, held: Sequence[UndeliverableVersion]
) -> list[UndeliverableVersion]:
    """Within a unit of the caller's; they keep waiting. Those of which nobody was told yet: a
    account who asks in two versions by turns is told of each once.
    """
    new: list[UndeliverableVersion] = []
    for one in _in_order(held):
        changed = await tx.execute("listing_mark_undeliverable", **_values(tx, client, one))
        if not changed or await history.add_once(tx, _held(one, client)):
            new.append(one)
    return new


async def write_undeliverable(tx: Tx, client: Client, held: Sequence[UndeliverableVersion]) -> None:
    """As `mark_undeliverable`, for whoever need not know which are new: it asks nothing, so that
    the unit can share its transaction with those that add deliveries.
    """
    for one in _in_order(held):
        await tx.write("listing_mark_undeliverable", **_values(tx, client, one))
        await history.write_once(tx, _held(one, client))


def _in_order(held: Sequence[UndeliverableVersion]) -> list[UndeliverableVersion]:
    """In which whoever locks several deliveries does it."""
    return sorted(held, key=lambda one: (one.reservation_id, one.version))


def _values(tx: Tx, client: Client, one: UndeliverableVersion) -> dict[str, str | int]:
    return {
        "account_id": client.account_id,
        "reservation_id": one.reservation_id,
        "version": one.version,
        "undeliverable_code": one.code.value,
        "undeliverable_text": one.text,
        "now_us": tx.now_us,
    }


def _held(one: UndeliverableVersion, client: Client) -> HistoryEntry:
    return _event(one, "undeliverable", client, code=one.code.value, text=one.text)


def _event(
    one: Sent | UndeliverableVersion, event: str, client: Client, **detail: str
) -> HistoryEntry:
    return HistoryEntry(
        reservation_id=one.reservation_id,
        version=one.version,
        event=event,
        account_id=client.account_id,
        detail={"protocol": client.protocol.name, **detail},
    )


def entry_of(row: Row, event: str, client: Client, **detail: str) -> HistoryEntry:
    """What an account's software did with the version of a row."""
    known = {"protocol": client.protocol.name, "client_id": client.client_id, **detail}
    return HistoryEntry(
        reservation_id=row["reservation_id"],
        version=row["version"],
        event=event,
        account_id=client.account_id,
        detail={name: value for name, value in known.items() if value},
    )
