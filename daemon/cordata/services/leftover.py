"""Says once, when the store is the broker, what was left in Redis, where nobody reads it now."""

from __future__ import annotations

import asyncio

from cordata.context import Context
from cordata.errors import StoreUnavailable
from cordata.log import logger
from cordata.services.primary import Leadership
from cordata.store import Tx

log = logger("cordata.outbox")

#: Looked at are so many entries at most, the last that Redis got.
_LOOK = 100_000


class LeftoverService:
    """On the primary, as soon as it leads."""

    name = "leftover"

    def __init__(self, leadership: Leadership) -> None:
        self._leadership = leadership

    async def run(self, stop: asyncio.Event) -> None:
        """Look once; then wait for the stop."""
        ctx = await self._leadership.wait(stop)
        if ctx is not None:
            try:
                await self.run_once(ctx)
            except StoreUnavailable as error:
                log.info("not known whether events were left in Redis: %s", error)
            await stop.wait()

    async def run_once(self, ctx: Context) -> int:
        """Count them, and warn if there are any."""

        async def unit(tx: Tx) -> int:
            row = await tx.fetch_one("inspection.left_in_redis", limit=_LOOK)
            return int(row["entries"]) if row is not None else 0

        left = await ctx.store.read(unit)
        if left:
            log.warning(
                "%d events were handed to Redis and not handled by every group, and [broker] url"
                " is the store now: `cordata outbox replay --all` gives each group what it lacks",
                left,
            )
        return left
