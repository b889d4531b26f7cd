"""Calls of the pool: the hub's commands are idempotent, and the caller can do without the pool."""

from __future__ import annotations

from time import monotonic
from typing import TypeVar
from weakref import WeakKeyDictionary

from cordata import Context
from cordata.errors import DeadlineExceeded, PoolUnavailable, QueueTimeout

T = TypeVar("T")

#: Seconds without calls after the pool did not answer in time, so that not every call waits.
_AWAY_S = 60.0

#: Pool client -> monotonic time until which the pool is not called.
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
