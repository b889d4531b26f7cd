"""Inbound updates: hotel software sends data about its hotel, which is stored with a record of the
message.

    read (rules/) -> receive: is it a hotel of the account, is the feature enabled
                       yes -> store the data and the record of the message in one unit of work
                       no  -> the response is an error, and only the message is recorded

Free rooms, inventory and info are stored as one document each; rate plans one by one
(actions/rate_plans.py). Free rooms are computed outside any transaction, because that may take a
while, and written if the stored revision is still the one that was read; otherwise the caller
computes them again. So no lock is held meanwhile, and no concurrent delta is lost.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO
from typing import Literal

from alpinehub.alpinebits.call import Call
from alpinehub.alpinebits.contact import note_contact
from alpinehub.alpinebits.document import tag
from alpinehub.alpinebits.outcome import Finding, MessageRejected, Outcome
from alpinehub.alpinebits.rules.inbound_message import InboundMessage
from alpinehub.alpinebits.transport_error import TransportError
from alpinehub.models import Hotel
from cordata import Store, Tx, request_id

DocumentKind = Literal["freerooms", "inventory", "info"]

#: How often an update is computed, again after each concurrent one.
TRIES = 8

_UNKNOWN_ROOMS = Finding(
    kind="advisory",
    text="some room categories are not in the inventory that this server has received",
    status="ALPINEBITS_SEND_INVENTORY",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """A message about a hotel of the account."""

    call: Call
    hotel: Hotel
    #: Findings before the message was stored.
    findings: tuple[Finding, ...] = ()

    async def record(self, tx: Tx, outcome: Outcome) -> None:
        """Record the message, in the unit of work that stores its data."""
        outcome = Outcome((*self.findings, *outcome.findings))
        await note_contact(tx, self.call.recipient, self.hotel.id)
        await tx.insert(
            "inbound_message",
            hotel_id=self.hotel.id,
            account_id=self.call.account.id,
            action=self.call.action,
            protocol=self.call.protocol.name,
            client_id=self.call.client_id or None,
            request_id=request_id.get(),
            received_at=tx.now_us,
            size_bytes=len(self.call.data or b""),
            outcome=outcome.kind,
            problem=next((finding.text for finding in outcome.findings), None),
        )


async def receive(
    call: Call, message: InboundMessage, store: Callable[[Update], Awaitable[Outcome]]
) -> bytes:
    """Check a message, store it by `store`, and respond; one that is rejected is recorded alone.

    Raises: MessageRejected, StoreUnavailable, and what `store` raises.
    """
    hotel = call.require_hotel(message)
    update = Update(call=call, hotel=hotel)
    try:
        if Outcome(message.findings).kind == "error":
            raise MessageRejected(*message.findings)
        message.require_features(hotel)
        unknown = await _unknown_rooms(call.ctx.store, hotel, message.room_types)
        update = replace(update, findings=(*message.findings, *unknown))
        outcome = await store(update)
    except MessageRejected as rejected:
        await call.ctx.store.run(partial(update.record, outcome=rejected.outcome))
        raise
    return call.respond(Outcome((*update.findings, *outcome.findings)))


async def _unknown_rooms(
    store: Store, hotel: Hotel, room_types: frozenset[str]
) -> tuple[Finding, ...]:
    """An advisory to send the inventory, if the stored one lacks room categories of the message.

    The message is stored anyway. Raises: StoreUnavailable.
    """
    if not room_types:
        return ()
    known = await find_document(store, hotel.id, "inventory")
    codes = await asyncio.to_thread(_codes, known.packed) if known.revision else room_types
    return (_UNKNOWN_ROOMS,) if codes and room_types - codes else ()


def _codes(inventory: bytes) -> frozenset[str]:
    """The room categories of a compressed inventory."""
    from lxml import etree

    codes: set[str] = set()
    for _, room in etree.iterparse(BytesIO(zlib.decompress(inventory)), tag=tag("GuestRoom")):
        codes.add(str(room.get("Code", "")))
        room.clear()  # else the tree of the largest inventory takes 50 MB
    return frozenset(codes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A document as it is stored."""

    #: Increases with each change; 0: there is no document yet.
    revision: int = 0
    packed: bytes = b""
    #: When the last complete set came.
    complete_at: int | None = None

    def body(self) -> bytes:
        """The decompressed document; a large one takes time."""
        return zlib.decompress(self.packed) if self.packed else b""


async def read_document(tx: Tx, hotel_id: int, kind: DocumentKind) -> Document:
    """A document of a hotel; one of revision 0 if there is none."""
    row = await tx.fetch_one("document_get", hotel_id=hotel_id, kind=kind)
    if row is None:
        return Document()
    return Document(revision=row["revision"], packed=row["body"], complete_at=row["complete_at"])


async def find_document(store: Store, hotel_id: int, kind: DocumentKind) -> Document:
    """As `read_document`, in a unit of work of its own. Raises: StoreUnavailable."""
    return await store.read(partial(read_document, hotel_id=hotel_id, kind=kind))


async def write_document(
    update: Update,
    kind: DocumentKind,
    body: bytes,
    outcome: Outcome,
    *,
    before: Document | None = None,
    complete: bool = True,
) -> bool:
    """Replace a document, and record the message. `before`: the document that it was made from.

    False: another update replaced that one first; nothing is stored. Raises: StoreUnavailable.
    """
    packed = await asyncio.to_thread(zlib.compress, body)

    async def unit(tx: Tx) -> bool:
        row = await tx.fetch_one(
            "document_set",
            hotel_id=update.hotel.id,
            kind=kind,
            seen=None if before is None else before.revision,
            protocol=update.call.protocol.name,
            account_id=update.call.account.id,
            body=packed,
            complete_at=tx.now_us if complete else None,
            now_us=tx.now_us,
        )
        if row is None:
            return False
        await update.record(tx, outcome)
        return True

    return await update.call.ctx.store.run(unit)


def lost_every_race() -> TransportError:
    """The error after TRIES concurrent updates."""
    return TransportError(503, "others are sending data of this hotel at the same time; try again")
