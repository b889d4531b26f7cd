"""Migrations by hand: what the primary does at its start, without starting it."""

from __future__ import annotations

from collections.abc import Callable

from cordata.context import Context
from cordata.errors import CordataError
from cordata.services.primary import LEASE_TOPIC
from cordata.store import Applied, Lease


async def migrate_once(
    ctx: Context, lease: Lease, *, progress: Callable[[str], None] | None = None
) -> list[Applied]:
    """Apply what is pending under the primary's lease; `progress(text)` before each.

    Raises: CordataError when a primary holds the lease; as `Store.migrate`.
    """
    fence = await lease.try_acquire()
    if fence is None:
        raise CordataError(
            "a primary is running: only one may migrate",
            hint="it does so when it starts: restart primary.service, or `cordata server`",
        )
    try:
        return await ctx.store.migrate(ctx.chains, fence=fence, progress=progress)
    finally:
        await lease.release()
        ctx.store.notify(LEASE_TOPIC)
