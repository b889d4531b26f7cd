"""What becomes of one outbox entry on its way to a broker that is not the store.

    pending ──claim──> processing ──accepted──> published
       ^                  │  │
       ├──gave back───────┤  ├──refused──────────> failed   (attempts + 1, due after a back-off)
       └──claim expired───┘  └──refused too often─> dead

An entry leaves `processing` by its relay, or by another one that may take it over: at most one
relay holds it, and whatever moment a relay dies at, somebody can still claim it. It may then reach
the broker twice, never not at all; consumers know the second one by its event id.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

#: Lanes, most urgent first. Their names sort the other way round, which the indexes use.
LIVE, BACKFILL = "live", "backfill"
LANES = (LIVE, BACKFILL)


class Place(NamedTuple):
    """Where an entry stands: ids grow within (type, key)."""

    id: int
    type: str
    key: str | None


def in_key_order(
    chosen: Sequence[Place], ahead: Sequence[Place], held: Collection[int], *, limit: int
) -> set[int]:
    """The ids of `chosen` and `ahead` that may go to the consumers together, now.

    `ahead` are the earlier entries of the chosen ones' keys, the earliest first; no more than
    `limit` were looked up. Of those only `held` are ours: another relay has the rest in its hands.
    No later entry of a key goes before an earlier one.
    """
    go = {place.id for place in chosen if place.key is None}
    barred: set[tuple[str, str | None]] = set()
    for place in ahead:
        if place.id not in held:
            barred.add((place.type, place.key))
        elif (place.type, place.key) not in barred:
            go.add(place.id)
    if len(ahead) < limit:  # else there may be more, of any key
        go |= {place.id for place in chosen if (place.type, place.key) not in barred}
    return go
