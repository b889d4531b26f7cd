"""The mark that a group has handled an event: it commits with the effect, so that this is once."""

from __future__ import annotations

from cordata.errors import AlreadySeen, ClaimLost, Conflict
from cordata.store import Store, Tx


async def mark_handled(tx: Tx, *, event_id: str, group: str, claim: int, attempts: int) -> None:
    """Take the message from the queue and write the mark, at the end of the effect's unit.

    It only writes, so that the unit can be batched. `claim` 0: it has no row in the queue.
    """
    if claim:
        await tx.write("queue.delete", rows=1, event_id=event_id, group=group, claim=claim)
    await tx.insert(
        "handled", event_id=event_id, group=group, attempts=attempts, handled_at=tx.now_us
    )


async def explain(
    store: Store, error: Conflict, *, event_id: str, group: str, claim: int
) -> AlreadySeen | ClaimLost | Conflict:
    """Whether an effect met a Conflict because its message is not this process' any more."""

    async def unit(tx: Tx) -> AlreadySeen | ClaimLost | Conflict:
        if await tx.fetch_one("queue.has_handled", event_id=event_id, group=group):
            return AlreadySeen(f"event {event_id} was handled by {group} before")
        if claim and not await tx.fetch_one(
            "queue.has_claim", event_id=event_id, group=group, claim=claim
        ):
            return ClaimLost(f"another process has event {event_id} of {group} by now")
        return error

    return await store.read(unit)
