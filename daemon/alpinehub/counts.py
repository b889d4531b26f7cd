"""What came per hotel and hour, kept up a step at a time: no scan, each thing counted once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from cordata import Event, Store, Tx

#: Versions counted in one unit: some milliseconds of the write lock.
STEP = 2000
_HOUR_US = 3_600_000_000
_KINDS = ("received", "modified", "cancelled", "duplicates", "errors", "spam")


async def note_change(tx: Tx, event: Event) -> None:
    """Have the version that an event tells of counted; within the unit that handles the event."""
    kind = event.type.removeprefix("reservation.")
    at = round(event.created_at.timestamp() * 1_000_000)
    await _note(tx, event.payload["hotel_id"], at, kind)


async def note(tx: Tx, hotel_id: int, kind: Literal["duplicates", "errors", "spam"]) -> None:
    """Have a submission counted that made no version; within a unit of the caller's."""
    await _note(tx, hotel_id, tx.now_us, kind)


async def _note(tx: Tx, hotel_id: int, at: int, kind: str) -> None:
    await tx.write(
        "note_change",
        hotel_id=hotel_id,
        hour_at=at - at % _HOUR_US,
        **{name: int(name == kind) for name in _KINDS},
    )


async def count(store: Store) -> int:
    """Count what was noted since the last time; how many versions that were.

    A note goes in the unit that counts it, so a crash loses and repeats nothing.
    """
    counted, step = 0, STEP
    while step == STEP:  # a step that is not full was the last: while notes come it would not end
        step = await store.run(count_step)
        counted += step
    return counted


async def count_step(tx: Tx) -> int:
    """The unit: the next notes, STEP at most; how many they were."""
    row = await tx.fetch_one("hour_changes", limit=STEP)
    if row is None or not row["count"]:
        return 0
    await tx.execute("add_to_hours", taken=row["taken"])
    await tx.execute("forget_changes", taken=row["taken"])
    return int(row["count"])
