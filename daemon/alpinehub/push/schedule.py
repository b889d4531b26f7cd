"""The schedule of outbound pushes: at most one `push.due` is pending for each account and hotel.

nothing waits (due_at NULL) --a version is made--> push.due now --success--> nothing waits
                                                    ^       |
                                                    +-later-+ failure
"""

from __future__ import annotations

from time import monotonic
from weakref import WeakKeyDictionary

from cordata import Store, Tx

#: Seconds for which a process trusts its list of hotels with a push target; the sweep finds what it
#: misses.
_TRUST_S = 2.0

_remembered: WeakKeyDictionary[Store, tuple[float, frozenset[int]]] = WeakKeyDictionary()


async def is_pushed(store: Store, hotel_id: int) -> bool:
    """Whether an account of a hotel has a push target."""
    return hotel_id in await _hotels(store)


async def _hotels(store: Store) -> frozenset[int]:
    """Hotels with a push target."""
    before = _remembered.get(store)
    if before is not None:
        until, hotels = before
        if monotonic() < until:
            return hotels
        # One task reads again; the others use the old list meanwhile.
        _remembered[store] = monotonic() + _TRUST_S, hotels
    try:
        rows = await store.read(lambda tx: tx.fetch_all("push_hotels"))
    except BaseException:
        _remembered.pop(store, None)
        raise
    found = frozenset(int(row["hotel_id"]) for row in rows)
    _remembered[store] = monotonic() + _TRUST_S, found
    return found


async def wake(
    tx: Tx,
    *,
    account_id: int | None = None,
    hotel_id: int | None = None,
    lost_at: int = 0,
    force: bool = False,
) -> None:
    """Publish `push.due` for each pair (of this account, of this hotel) that has none pending."""
    rows = await tx.fetch_all(
        "push_wake",
        account_id=account_id,
        hotel_id=hotel_id,
        lost_at=lost_at,
        force=int(force),
        now_us=tx.now_us,
    )
    for row in rows:
        await publish(tx, row["account_id"], row["hotel_id"], tx.now_us)


async def publish(tx: Tx, account_id: int, hotel_id: int, at: int, *, after_id: str = "") -> None:
    """A `push.due`; those of one account and hotel are handled one after the other.

    `after_id`: where each guest request goes alone, the push begins behind this one.
    """
    payload = {"account_id": account_id, "hotel_id": hotel_id, "after_id": after_id}
    await tx.publish("push.due", payload, key=f"push:{account_id}:{hotel_id}", at=at)
