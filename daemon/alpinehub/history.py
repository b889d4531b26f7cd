"""The history of a guest request: what happened to each of its versions, appended only.

Each entry is written in the unit of work that it describes, so the history is always complete. That
a version was received, modified or cancelled is in its own row; the view `reservation_history` has
both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from alpinehub.sql import encode_list
from cordata import Tx, request_id


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened to a version."""

    reservation_id: str
    version: int
    event: str
    #: The account of the hotel software that did it.
    account_id: int | None = None
    #: More facts; no data of the guest.
    detail: Mapping[str, object] | None = None
    #: None: that of the current request.
    request_id: str | None = None


async def add(tx: Tx, *entries: HistoryEntry) -> None:
    """Append entries."""
    for entry in entries:
        await tx.insert("reservation_event", **_columns(tx, entry))


async def add_for_each(
    tx: Tx,
    versions: Sequence[tuple[str, int]],
    event: str,
    *,
    account_id: int,
    detail: Mapping[str, object],
) -> None:
    """Append an entry of the same event for each (reservation id, version), by one statement."""
    if versions:
        await tx.write(
            "history_add_for_each",
            versions=encode_list(versions),
            event=event,
            account_id=account_id,
            at=tx.now_us,
            request_id=request_id.get(),
            detail=_encode(detail),
        )


async def add_once(tx: Tx, entry: HistoryEntry) -> bool:
    """Append an entry, unless one with the same detail is stored already. Returns whether."""
    return await tx.execute("history_add_once", **_columns(tx, entry)) > 0


def _columns(tx: Tx, entry: HistoryEntry) -> dict[str, str | int | None]:
    return {
        "reservation_id": entry.reservation_id,
        "version": entry.version,
        "event": entry.event,
        "account_id": entry.account_id,
        "at": tx.now_us,
        "request_id": request_id.get() if entry.request_id is None else entry.request_id,
        "detail": _encode(entry.detail),
    }


def _encode(detail: Mapping[str, object] | None) -> str | None:
    return msgspec.json.encode(detail).decode() if detail else None
