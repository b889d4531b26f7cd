"""Versions per hotel and hour, kept up a step at a time: no scan, each version counted once."""

from __future__ import annotations

from cordata import Store, Tx

#: Versions counted in one unit: some milliseconds of the write lock.
STEP = 2000


async def count(store: Store) -> int:
    """Count what came since the last time; how many versions that were.

    The counts and the position they reach commit together, so a crash loses and repeats nothing.
    """
    counted = 0
    while step := await store.run(count_step):
        counted += step
    return counted


async def count_step(tx: Tx) -> int:
    """The unit: the next versions, STEP at most; how far the position moved."""
    row = await tx.fetch_one("count_position")
    position = int(row["position"]) if row is not None else 0
    end = await tx.fetch_one("count_end", position=position, step=STEP)
    if end is None or end["position"] is None:
        return 0
    upto = int(end["position"])
    await tx.execute("count_versions", after=position, upto=upto)
    await tx.execute("move_count_position", position=upto)
    return upto - position
