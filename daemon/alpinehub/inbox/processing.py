"""Interprets a row of the inbox again, for an operator, and settles it with its reservation.

That is one unit of work, which locks the row: a second process finds its new state.
"""

from __future__ import annotations

from msgspec import Struct

from alpinehub import counts
from alpinehub.directory import joined_hotel, options_of
from alpinehub.intake import (
    NormalisedSubmission,
    StoreResult,
    add_or_change,
    find_existing,
    prepare,
    run_until_stored,
)
from alpinehub.webhooks.endpoint import kept_content_type
from alpinehub.webhooks.fields import OF_KIND, FieldMapping
from alpinehub.webhooks.interpretation import (
    Ignored,
    Mapped,
    Received,
    Unmapped,
    interpret,
    interpret_by,
)
from alpinehub.webhooks.submission import FormField, Unreadable
from cordata import Context, Row, Tx


async def settle(
    ctx: Context, inbox_id: int, *, state: str = "review", accepted_by: str = ""
) -> None:
    """Interpret a row that is in this state and has its text, and store the result.

    A difference from a mapped row changes its reservation. `accepted_by`: the operator who accepts
    a stay that is in the past, or very long. Raises: StoreUnavailable.
    """
    row = await ctx.store.read(lambda tx: tx.fetch_one("inbox_open", id=inbox_id))
    if row is None or row["kind"] not in OF_KIND or row["state"] != state or not row["body"]:
        return
    found, mapping = interpreted(row, accept=bool(accepted_by))
    settling = _Settling(row=row, found=found, mapping=mapping, by=accepted_by)
    await run_until_stored(ctx.store, settling, batch=False)


def interpreted(
    row: Row, mapping: FieldMapping | None = None, *, accept: bool = False
) -> tuple[Mapped | Unmapped | Ignored, FieldMapping]:
    """Interpret a row of `inbox_open` by a mapping, by default its source's; returns both."""
    if mapping is not None:
        return interpret(_received(row), mapping, joined_hotel(row), accept=accept), mapping
    return interpret_by(row["mapping"], _received(row), joined_hotel(row), accept=accept)


def fields_of(row: Row) -> tuple[FormField, ...]:
    """The fields of a row; none if its kind has no fields, or its body cannot be read."""
    if row["kind"] not in OF_KIND:
        return ()
    try:
        return _received(row).submission.answers
    except Unreadable:
        return ()


def _received(row: Row) -> Received:
    return Received(
        kind=row["kind"],
        body=bytes(row["body"]),
        content_type=kept_content_type(row["headers"]),
        honeypot=options_of(row["options"], row["source"]).honeypot,
        received_at=row["received_at"],
    )


class _Settling(Struct, frozen=True, kw_only=True):
    """The unit of work that settles one row."""

    row: Row
    found: Mapped | Unmapped | Ignored
    mapping: FieldMapping
    by: str

    async def __call__(self, tx: Tx, *, batch: bool) -> None:
        """Settle the row, unless another process has settled it or deleted its text."""
        held = await tx.fetch_one("inbox_lock", id=self.row["id"])
        if held is None or held["state"] != self.row["state"] or not held["has_text"]:
            return
        is_mapped, found = held["state"] == "mapped", self.found
        if is_mapped and await self._is_outdated(tx, self.row["reservation_id"]):
            return
        if isinstance(found, Mapped):
            await self._map(tx, found, is_mapped=is_mapped)
        elif is_mapped:
            return  # its reservation is not changed
        elif isinstance(found, Ignored):
            if found.outcome == held["outcome"]:
                return  # it was counted when it arrived
            await counts.add(tx, self.row["hotel_id"], found.outcome)
            await self._write(tx, "rejected", outcome=found.outcome)
        else:
            problems = "; ".join(found.problems)
            await self._write(tx, "review", error=problems, external_id=found.external_id)

    async def _is_outdated(self, tx: Tx, reservation_id: str) -> bool:
        """Whether a later submission has changed the reservation."""
        newer = await tx.fetch_one("inbox_newer", reservation_id=reservation_id, id=self.row["id"])
        return newer is not None

    async def _map(self, tx: Tx, found: Mapped, *, is_mapped: bool) -> None:
        submission = self._submission(found, is_mapped=is_mapped)
        prepared = prepare(submission, tx.now_us)
        submission, existing = await find_existing(tx, submission, prepared)
        if existing is not None and await self._is_outdated(tx, existing["id"]):
            result = StoreResult(existing["id"], "duplicate")
        else:
            result = await add_or_change(tx, submission, prepared, existing)
        if result.outcome == "duplicate":
            if is_mapped:
                return  # nothing is new, and its outcome stays that of the first time
            await counts.add(tx, self.row["hotel_id"], "duplicate")
        await self._write(
            tx,
            "mapped",
            outcome=result.outcome,
            reservation_id=result.reservation_id,
            external_id=submission.external_id,
        )

    def _submission(self, found: Mapped, *, is_mapped: bool) -> NormalisedSubmission:
        """`is_mapped`: a reservation has the external id of the row, also if the sender has none
        or the mapping says another.
        """
        row = self.row
        detail = found.history_detail(self.mapping)
        return NormalisedSubmission(
            source_id=row["source_id"],
            hotel=joined_hotel(row),
            data=found.data,
            external_id=(is_mapped and row["external_id"]) or found.external_id,
            content_is_id=True,
            body=b"",
            headers="",
            request_id=row["request_id"],
            inbox_id=row["id"],
            received_at=row["received_at"],
            mapped_by={**detail, "accepted_by": self.by} if self.by else detail,
        )

    async def _write(self, tx: Tx, state: str, **result: str | None) -> None:
        """Write the result."""
        columns = {"outcome": None, "error": None, "reservation_id": None, "external_id": None}
        await tx.write(
            "inbox_settle", id=self.row["id"], state=state, now=tx.now_us, **columns | result
        )
