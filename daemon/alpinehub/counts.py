"""Versions per hotel and hour, kept up a step at a time: no scan, each version counted once."""

from __future__ import annotations

from collections import Counter

import msgspec

from cordata import Event, Store, Tx

#: Versions counted in one unit: some milliseconds of the write lock.
STEP = 2000
_HOUR_US = 3_600_000_000
_KINDS = ("received", "modified", "cancelled")


async def note_change(tx: Tx, event: Event) -> None:
    """Have the version that an event tells of counted; within the unit that handles the event."""
    kind = event.type.removeprefix("reservation.")
    at = round(event.created_at.timestamp() * 1_000_000)
    await tx.write(
        "note_change",
        hotel_id=event.payload["hotel_id"],
        hour_at=at - at % _HOUR_US,
        **{name: int(name == kind) for name in _KINDS},
    )


async def count(store: Store) -> int:
    """Count what was noted since the last time; how many versions that were.

    A note goes in the unit that counts it, so a crash loses and repeats nothing.
    """
    counted = 0
    while step := await store.run(count_step):
        counted += step
    return counted


async def count_step(tx: Tx) -> int:
    """The unit: the next notes, STEP at most; how many they were."""
    rows = await tx.fetch_all("hour_changes", limit=STEP)
    if not rows:
        return 0
    hours: dict[tuple[int, int], Counter[str]] = {}
    for row in rows:
        hour = hours.setdefault(
            (row["hotel_id"], row["hour_at"]), Counter(dict.fromkeys(_KINDS, 0))
        )
        hour.update({name: row[name] for name in _KINDS})
    await tx.execute_many(
        "add_to_hour",
        [{"hotel_id": hotel, "hour_at": at, **hours[hotel, at]} for hotel, at in sorted(hours)],
    )
    ids = msgspec.json.encode([row["id"] for row in rows]).decode()
    await tx.execute("forget_changes", ids=ids)
    return len(rows)
