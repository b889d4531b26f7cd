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
#: Until then what another process was about to claim is claimed, or free again.
_IN_HAND_US = 20_000


Key = tuple[str, str | None]


class Place(NamedTuple):
    """Where an entry stands: ids grow within (type, key)."""

    id: int
    type: str
    key: str | None


def not_at_once(at: int | None, now_us: int) -> int | None:
    """When to look for what was not to be had although it is due: others have it in hand, and
    whoever tried again at once would do so until they have committed.
    """
    return at if at is None or at > now_us else now_us + _IN_HAND_US


def in_key_order(
    chosen: Sequence[Place], ahead: Sequence[Place], held: Collection[int], *, limit: int
) -> set[int]:
    """The ids of `chosen` and `ahead` that may go to the consumers together, now.

    `ahead` are the earlier entries of the chosen ones' keys, key after key, the earliest first; the
    look at them ended after `limit`. Only `held` of those are ours: another relay has the rest in
    its hands. No later entry of a key goes before an earlier one.
    """
    barred = dict[Key, int]()
    for place in ahead:
        if place.id not in held:
            barred[_key(place)] = min(place.id, barred.get(_key(place), place.id))
    if len(ahead) >= limit:
        # Of the last key there may be more behind these, of a key without any there may be some.
        seen = {_key(place) for place in ahead}
        unknown = {_key(place): 0 for place in chosen if _key(place) not in seen}
        barred |= unknown
        last = ahead[-1]
        barred[_key(last)] = min(last.id + 1, barred.get(_key(last), last.id + 1))
    return {
        place.id
        for place in (*chosen, *(place for place in ahead if place.id in held))
        if place.key is None or place.id < barred.get(_key(place), place.id + 1)
    }


def _key(place: Place) -> Key:
    return place.type, place.key
