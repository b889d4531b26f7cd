"""The schedule of outbound pushes: at most one `push.due` is pending for each account and hotel.

nothing waits (due_at NULL) --a version is made--> push.due now --success--> nothing waits
                                                    ^       |
                                                    +-later-+ failure
"""

from __future__ import annotations

from cordata import Tx

#: The longest pause after failures. What is due later was written before the clock was set back.
LONGEST_PAUSE_S = 900


async def wake(
    tx: Tx,
    *,
    account_id: int | None = None,
    hotel_id: int | None = None,
    lost_at: int = 0,
) -> None:
    """Publish `push.due` for each account and hotel where something waits and none is pending; for
    all, or those of one hotel. One that was due before `lost_at` (us), or is due after the longest
    pause, is lost, and published again.

    `account_id`: for each hotel of this account, whatever waits or is pending.
    """
    rows = await tx.fetch_all(
        "push_wake",
        account_id=account_id,
        hotel_id=hotel_id,
        lost_at=lost_at,
        latest_at=tx.now_us + LONGEST_PAUSE_S * 1_000_000,
        now_us=tx.now_us,
    )
    for row in rows:
        await publish(tx, row["account_id"], row["hotel_id"], tx.now_us)


async def publish(tx: Tx, account_id: int, hotel_id: int, at: int, *, after_id: str = "") -> None:
    """Publish a `push.due` for the time `at` (us); those of one account and hotel are handled one
    after the other. `after_id`: the push begins after this id, and continues from the start.
    """
    payload = {"account_id": account_id, "hotel_id": hotel_id, "after_id": after_id}
    await tx.publish("push.due", payload, key=f"push:{account_id}:{hotel_id}", at=at)
