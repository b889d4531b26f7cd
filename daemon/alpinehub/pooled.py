"""How the hub calls the pool: what it has there may run twice, and can be done without it."""

from __future__ import annotations

from time import monotonic
from typing import TypeVar
from weakref import WeakKeyDictionary

from cordata import Context
from cordata.errors import DeadlineExceeded, PoolUnavailable, QueueTimeout

T = TypeVar("T")

#: A pool that gave no answer in time is not waited for again so soon: there may be many calls.
_AWAY_S = 60.0

#: Until when a pool counts as away, by its client.
_away_until: WeakKeyDictionary[object, float] = WeakKeyDictionary()


async def in_the_pool(
    ctx: Context, command: str, payload: object, *, timeout_s: float, type: type[T]
) -> T:
    """The result of an idempotent command, as `type`. Raises: PoolError."""
    pool = ctx.pool
    if monotonic() < _away_until.get(pool, 0.0):
        raise PoolUnavailable("it did not answer a moment ago")
    try:
        result: T = await pool.execute(
            command, payload, timeout=timeout_s, idempotent=True, type=type
        )
    except (PoolUnavailable, DeadlineExceeded, QueueTimeout):
        _away_until[pool] = monotonic() + _AWAY_S
        raise
    return result
