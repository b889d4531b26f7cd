"""Hotel data that is stored as one document of each kind: free rooms, inventory, info.

A document is changed outside any transaction, for that may take a while, and written if it is still
the one that was read; else the caller does it once more with the newer one. So nobody waits for a
lock meanwhile, and two deltas at once are both in it.
"""

from __future__ import annotations

import asyncio
import zlib
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Literal

from alpinehub.alpinebits.outcome import Outcome
from alpinehub.alpinebits.transport_error import TransportError

if TYPE_CHECKING:
    from alpinehub.alpinebits.inbound import Update
    from cordata import Store, Tx

Kind = Literal["freerooms", "inventory", "info"]

#: As many others may be first before we give up.
TRIES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A document as it is stored."""

    #: Goes up with each change; 0: there is none yet.
    revision: int = 0
    #: The protocol version in which it came.
    protocol: str = ""
    packed: bytes = b""
    #: When the last complete set came.
    complete_at: int | None = None
    changed_at: int = 0

    def body(self) -> bytes:
        """The document itself; a large one takes a moment."""
        return zlib.decompress(self.packed) if self.packed else b""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentChange:
    """What an update makes of a document."""

    outcome: Outcome = field(default_factory=Outcome)
    #: None: it stays as it is.
    body: bytes | None = None
    #: It replaces everything.
    complete: bool = True


async def read_document(tx: Tx, hotel_id: int, kind: Kind) -> Document:
    """The document of a hotel, perhaps one that does not exist yet."""
    row = await tx.fetch_one("document_get", hotel_id=hotel_id, kind=kind)
    if row is None:
        return Document()
    columns = dict(row)
    return Document(packed=columns.pop("body"), **columns)


async def find_document(store: Store, hotel_id: int, kind: Kind) -> Document:
    """As `read_document`, in a unit of its own. Raises: StoreUnavailable."""
    return await store.read(partial(read_document, hotel_id=hotel_id, kind=kind))


async def write_document(
    update: Update, kind: Kind, before: Document, change: DocumentChange
) -> bool:
    """Store a change of a document that was read `before`, and that the update came.

    False: somebody else was first, and nothing is stored. Raises: StoreUnavailable.
    """
    packed = None
    if change.body is not None:
        packed = await asyncio.to_thread(zlib.compress, change.body)

    async def unit(tx: Tx) -> bool:
        if packed is not None and not await _write(tx, update, kind, before, change, packed):
            return False
        await update.record(tx, change.outcome)
        return True

    return await update.call.ctx.store.run(unit)


async def _write(
    tx: Tx, update: Update, kind: Kind, before: Document, change: DocumentChange, packed: bytes
) -> bool:
    values: dict[str, object] = {
        "hotel_id": update.hotel.id,
        "kind": kind,
        "protocol": update.call.protocol.name,
        "account_id": update.call.account.id,
        "body": packed,
        "complete_at": tx.now_us if change.complete else None,
        "now_us": tx.now_us,
    }
    if before.revision:
        return await tx.fetch_one("document_replace", seen=before.revision, **values) is not None
    return await tx.fetch_one("document_add", **values) is not None


def too_many_at_once() -> TransportError:
    """For an update that others preceded again and again."""
    return TransportError(503, "others are telling of this hotel at the same time; try again")
