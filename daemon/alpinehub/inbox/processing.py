"""Interprets a row of the inbox, and settles it in one unit of work with its reservation.

The state of the row makes sure that this happens once: a second process finds it settled. So any
process may try again, also after a crash.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from hashlib import blake2b

import msgspec
from msgspec import Struct

from alpinehub import counts, history
from alpinehub.directory import joined_hotel, options_of
from alpinehub.inbox.forms import see_form
from alpinehub.intake import RUNS, NormalisedSubmission, StoreResult, store_in_unit
from alpinehub.reservations import encode
from alpinehub.webhooks import fields as mappings
from alpinehub.webhooks.fields import FieldMapping
from alpinehub.webhooks.interpretation import (
    Ignored,
    Mapped,
    Received,
    Unmapped,
    interpret,
    take_apart,
)
from alpinehub.webhooks.submission import FormField, Unreadable
from cordata import Conflict, Context, EventContext, Row, StoreUnavailable, Tx
from cordata.errors import AlreadySeen, ClaimLost

#: States of a row that is not settled.
OPEN = ("received", "review")
#: Width of a time slot. The same content in the same or a neighbouring slot is one submission: a
#: double click, a reload.
_SLOT_US = 600_000_000


async def settle_or_review(ctx: EventContext, inbox_id: int) -> None:
    """Settle a row; one that cannot be interpreted goes to the review list.

    Raises: StoreUnavailable, AlreadySeen, ClaimLost.
    """
    try:
        await settle(ctx, inbox_id)
    except (StoreUnavailable, AlreadySeen, ClaimLost):
        raise
    except Exception:  # an error in the row, or of the hub: a person decides
        text = f"submission {inbox_id} of the inbox cannot be interpreted"
        ctx.log.warning("%s", text, exc_info=True)
        ctx.alert("inbox-failed", f"{text}: `alpinehub inbox show {inbox_id}`")
        await ctx.run(partial(_send_to_review, inbox_id=inbox_id))


async def _send_to_review(tx: Tx, *, inbox_id: int) -> None:
    """Move a row to the review list, not interpreted."""
    held = await tx.fetch_one("inbox_lock", id=inbox_id)
    if held is not None and held["state"] == "received":
        await _write(tx, inbox_id, "review", error="handler_failed")


async def settle(
    ctx: Context, inbox_id: int, *, force: bool = False, accepted_by: str = ""
) -> None:
    """Interpret a row and store the result, unless it was settled already.

    `force`: also a mapped row; a difference changes its reservation. `accepted_by`: the operator
    who accepts a stay that is in the past, or very long. Raises: StoreUnavailable.
    """
    row = await ctx.store.read(lambda tx: tx.fetch_one("inbox_open", id=inbox_id))
    if row is None or row["kind"] not in mappings.OF_KIND or not can_settle(row["state"], force):
        return
    found, mapping = interpreted(row, accept=bool(accepted_by))
    if not isinstance(found, Ignored) and found.shape is not None:
        await see_form(ctx, row, found.shape)
    settling = _Settling(
        row=row, found=found, mapping=mapping, force=force, accepted_by=accepted_by
    )
    for _ in range(RUNS):
        try:
            state = await ctx.run(settling.store)
        except Conflict:
            continue
        if state == "review" and row["state"] == "received" and isinstance(found, Unmapped):
            _alert(ctx, row, found)
        return
    raise StoreUnavailable("too many concurrent changes of one reservation", retry_after_s=1)


def interpreted(
    row: Row, mapping: FieldMapping | None = None, *, accept: bool = False
) -> tuple[Mapped | Unmapped | Ignored, FieldMapping]:
    """Interpret a row of `inbox_open` by a mapping, by default its source's; returns both."""
    try:
        mapping = mapping or mappings.of_source(row["kind"], row["mapping"])
    except msgspec.DecodeError:
        return Unmapped(("mapping_unreadable",)), FieldMapping()
    return interpret(_received(row), mapping, joined_hotel(row), accept=accept), mapping


def fields_of(row: Row) -> tuple[FormField, ...]:
    """The fields of a row; none if its kind has no fields, or its body cannot be read."""
    if row["kind"] not in mappings.OF_KIND:
        return ()
    try:
        return take_apart(_received(row)).answers
    except Unreadable:
        return ()


def _received(row: Row) -> Received:
    return Received(
        kind=row["kind"],
        body=bytes(row["body"]),
        content_type=content_type(row["headers"]),
        honeypot=options_of(row["options"], row["source"]).honeypot,
        received_at=row["received_at"],
    )


def content_type(headers: str) -> str:
    """The body's Content-Type as the sender stated it, from the stored headers (JSON)."""
    kept = msgspec.json.decode(headers)
    return str(kept.get("content-type", "")) if isinstance(kept, dict) else ""


def _alert(ctx: Context, row: Row, found: Unmapped) -> None:
    problems = ", ".join(found.problems[:10])
    ctx.alert(
        f"unmapped:{row['source_id']}",
        f"a submission of source {row['source']} of hotel {row['hotel']} cannot be mapped: "
        f"{problems}; see `alpinehub inbox list --state review`",
        ids=[row["hotel"]],
    )


class _Settling(Struct, frozen=True, kw_only=True):
    """The unit of work that settles one row."""

    row: Row
    found: Mapped | Unmapped | Ignored
    mapping: FieldMapping
    force: bool
    accepted_by: str

    async def store(self, tx: Tx) -> str | None:
        """Returns the row's new state; None if another process has settled it."""
        held = await tx.fetch_one("inbox_lock", id=self.row["id"])
        state = held["state"] if held is not None else ""
        if not can_settle(state, self.force):
            return None
        found = self.found
        if state == "mapped" and await self._is_outdated(tx, self.row["reservation_id"]):
            return "mapped"
        if isinstance(found, Mapped):
            return await self._map(tx, found, state)
        if state == "mapped":
            return "mapped"  # its reservation is not changed
        inbox_id: int = self.row["id"]
        if isinstance(found, Ignored):
            await counts.add(tx, self.row["hotel_id"], found.outcome)
            return await _write(tx, inbox_id, "rejected", outcome=found.outcome)
        problems = "; ".join(found.problems)
        return await _write(tx, inbox_id, "review", error=problems, external_id=found.external_id)

    async def _is_outdated(self, tx: Tx, reservation_id: str) -> bool:
        """Whether a later submission has changed the reservation."""
        newer = await tx.fetch_one("inbox_newer", reservation_id=reservation_id, id=self.row["id"])
        return newer is not None

    async def _map(self, tx: Tx, found: Mapped, state: str) -> str:
        external_id, existing = await self._find(tx, found)
        if existing is not None and await self._is_outdated(tx, existing["id"]):
            result = StoreResult(existing["id"], "duplicate")  # a later one was settled first
        else:
            result = await store_in_unit(tx, self._submission(found, external_id), existing)
        if result.outcome != "duplicate":
            await self._note(tx, result, found)
        elif state == "mapped":
            return "mapped"  # nothing is new, and its outcome stays that of the first time
        else:
            await counts.add(tx, self.row["hotel_id"], "duplicate")
        return await _write(
            tx,
            self.row["id"],
            "mapped",
            outcome=result.outcome,
            reservation_id=result.reservation_id,
            external_id=external_id,
        )

    async def _note(self, tx: Tx, result: StoreResult, found: Mapped) -> None:
        detail: dict[str, object] = {"inbox": self.row["id"], "mapping": self.mapping.revision}
        if found.remapped:
            detail["remapped"] = list(found.remapped)
        if self.accepted_by:
            detail["accepted_by"] = self.accepted_by
        row = history.HistoryEntry(
            reservation_id=result.reservation_id,
            version=result.version,
            event="mapped",
            detail=detail,
            request_id=self.row["request_id"],
        )
        await history.add(tx, row)

    def _submission(self, found: Mapped, external_id: str) -> NormalisedSubmission:
        row = self.row
        return NormalisedSubmission(
            source_id=row["source_id"],
            hotel=dataclasses.replace(joined_hotel(row), pushed=bool(row["pushed"])),
            data=found.data,
            external_id=external_id,
            body=b"",
            headers="",
            request_id=row["request_id"],
            inbox_id=row["id"],
            received_at=row["received_at"],
        )

    async def _find(self, tx: Tx, found: Mapped) -> tuple[str, Row | None]:
        """The sender's id and the reservation with it. Without an id, one is made of content and
        time: the same content in the same or a neighbouring slot is one submission, a week later
        it is another. The later of the two may be settled first, so the slot after counts, too.
        Both may be settled at once, and no unique key compares their ids: so the content is locked.
        """
        row = self.row
        if row["external_id"] and row["state"] == "mapped":
            ids = [row["external_id"]]  # by which its reservation is known
        elif found.external_id is not None:
            ids = [found.external_id]
        else:
            content, slot = encode(found.data), row["received_at"] // _SLOT_US
            ids = [_content_id(content, one) for one in (slot, slot - 1, slot + 1)]
            locked = {"source_id": row["source_id"], "content": content.decode()}
            await tx.fetch_one("inbox_lock_content", **locked)
        for external_id in ids:
            existing = await tx.fetch_one(
                "find_reservation", source_id=row["source_id"], external_id=external_id
            )
            if existing is not None:
                return external_id, existing
        return ids[0], None


def can_settle(state: str, force: bool) -> bool:
    """Whether a row in this state is to be interpreted."""
    return state in OPEN or (force and state == "mapped")


async def _write(
    tx: Tx,
    inbox_id: int,
    state: str,
    *,
    outcome: str | None = None,
    error: str | None = None,
    reservation_id: str | None = None,
    external_id: str | None = None,
) -> str:
    """Write the result of a row. Returns its new state."""
    await tx.write(
        "inbox_settle",
        id=inbox_id,
        state=state,
        outcome=outcome,
        error=error,
        reservation_id=reservation_id,
        external_id=external_id,
        now=tx.now_us,
    )
    return state


def _content_id(content: bytes, slot: int) -> str:
    return blake2b(content, digest_size=12, salt=slot.to_bytes(8, "big")).hexdigest()
