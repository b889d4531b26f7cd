"""Hourly counts of a hotel: the submissions that became no version of a guest request.

    unit of a submission --one row--> hour_change --added by the primary--> hotel_hour

So two workers never wait for the row of a hotel, and each submission is counted once.
"""

from __future__ import annotations

from typing import Literal

from alpinehub.sql import encode_list
from cordata import Store, Tx

#: Changes added by one unit: some milliseconds of the write lock.
STEP = 2000
_HOUR_US = 3_600_000_000

#: duplicate: it had nothing new; test, spam: not sent to the hotel; error: refused as not valid.
Kind = Literal["duplicate", "test", "spam", "error"]


async def add(tx: Tx, hotel_id: int, kind: Kind) -> None:
    """Count one submission of a hotel, in the caller's unit."""
    hour_at = tx.now_us - tx.now_us % _HOUR_US
    await tx.insert("hour_change", hotel_id=hotel_id, hour_at=hour_at, kind=kind)


async def fold(store: Store) -> int:
    """Add the changes since the last time to the hours. Returns how many there were.

    A change is deleted by the unit that adds it, so a crash loses and repeats nothing.
    """
    folded, step = 0, STEP
    while step == STEP:  # the first step that is not full is the last: new ones may keep coming
        step = await store.run(fold_step)
        folded += step
    return folded


async def fold_step(tx: Tx) -> int:
    """The unit: adds the next changes, STEP at most. Returns how many there were."""
    changes = await tx.fetch_all("hour_changes", limit=STEP)
    if changes:
        taken = encode_list(row["id"] for row in changes)
        await tx.execute("add_to_hours", taken=taken)
        await tx.execute("forget_changes", taken=taken)
    return len(changes)
