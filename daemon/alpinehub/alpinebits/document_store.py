"""What hotel software told of a hotel, kept as one document of each kind.

A document is changed outside any transaction, for that may take a while, and written if it is still
the one that was read; else once more with the newer one. So nobody waits for a lock meanwhile, and
two deltas at once are both in it.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Literal

from alpinehub.alpinebits.outcome import Outcome
from alpinehub.alpinebits.transport_error import TransportError

if TYPE_CHECKING:
    from alpinehub.alpinebits.inbound import Push
    from cordata import Row, Tx

Kind = Literal["freerooms", "inventory", "info"]

#: As many others may be first before we give up.
_TRIES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A document as it is kept."""

    #: Goes up with each change; 0: there is none yet.
    revision: int = 0
    #: The protocol version in which it came.
    protocol: str = ""
    body: bytes = b""
    #: When the last complete set came.
    complete_at: int | None = None
    changed_at: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a push makes of a document."""

    verdict: Outcome = field(default_factory=Outcome)
    #: None: it stays as it is.
    body: bytes | None = None
    #: It replaces everything.
    complete: bool = True


async def read_document(tx: Tx, hotel_id: int, kind: Kind) -> Document:
    """The document of a hotel, perhaps one that does not exist yet."""
    return _document(await _find(tx, hotel_id, kind))


async def change_document(push: Push, kind: Kind, change: Callable[[Document], Change]) -> Outcome:
    """Store what a push makes of a document, and that it came.

    `change` is called in a thread, perhaps several times. Raises: StoreUnavailable; TransportError
    (503) when others were first again and again.
    """
    store = push.call.ctx.store
    for _ in range(_TRIES):
        row = await store.read(partial(_find, hotel_id=push.hotel.id, kind=kind))
        seen = row["revision"] if row is not None else 0
        made, body = await asyncio.to_thread(_make, row, change)
        if await store.run(partial(_write, push=push, kind=kind, seen=seen, made=made, body=body)):
            return made.verdict
    raise TransportError(503, "others are telling of this hotel at the same time; try again")


async def _find(tx: Tx, hotel_id: int, kind: Kind) -> Row | None:
    return await tx.fetch_one("document_get", hotel_id=hotel_id, kind=kind)


def _document(row: Row | None) -> Document:
    return Document(**{**row, "body": zlib.decompress(row["body"])}) if row else Document()


def _make(row: Row | None, change: Callable[[Document], Change]) -> tuple[Change, bytes | None]:
    made = change(_document(row))
    return made, None if made.body is None else zlib.compress(made.body)


async def _write(
    tx: Tx, push: Push, kind: Kind, seen: int, made: Change, body: bytes | None
) -> bool:
    """Whether nobody was first."""
    if body is not None:
        values: dict[str, object] = {
            "hotel_id": push.hotel.id,
            "kind": kind,
            "protocol": push.call.protocol.name,
            "account_id": push.call.account.id,
            "body": body,
            "complete_at": tx.now_us if made.complete else None,
            "now_us": tx.now_us,
        }
        if seen:
            written = await tx.fetch_one("document_replace", seen=seen, **values)
        else:
            written = await tx.fetch_one("document_add", **values)
        if written is None:
            return False
    await push.note(tx, made.verdict)
    return True
