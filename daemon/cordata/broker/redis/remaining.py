"""What is left to do, though messages move while one looks.

    outbox ──> stream ──> nowhere any more, or `message` in the store
       ^          │
       └──────────┘  what handlers publish

The store before the stream misses what is moved on to it meanwhile, the stream before the store
what comes from the outbox. So the store is looked at twice, and if anything has gone from the
outbox to a stream in between, something may be left.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

from cordata.broker import claim
from cordata.broker.message import Depth
from cordata.broker.store import StoreBroker
from cordata.store import Store, Tx


async def depth(
    store: Store,
    inner: StoreBroker,
    groups: Collection[str],
    look: Callable[[], Awaitable[tuple[bool, bool]]],
) -> Depth:
    """For these groups; `look` tells whether streams hold anything that waits, or is in hands.

    Raises: StoreUnavailable; what `look` raises.
    """
    top = await store.read(_top)
    before = await inner.depth(groups)
    relaying = bool(await store.read(claim.owners))
    waiting, claimed = await look()
    after = await inner.depth(groups)
    relaying = relaying or bool(await store.read(claim.owners))
    moved = top != await store.read(_top)
    return Depth(
        outbox=before.outbox or after.outbox or relaying or moved,
        ready=before.ready or after.ready or waiting,
        claimed=before.claimed or after.claimed or claimed,
        dead=after.dead,
    )


async def _top(tx: Tx) -> int:
    """The highest position that an entry got in a stream."""
    row = await tx.fetch_one("redis.top")
    return row["position"] or 0 if row is not None else 0
