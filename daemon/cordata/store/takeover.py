"""Takeover requests: a process with newer migrations asks the holder of a lease to hand it over."""

from __future__ import annotations

from cordata.store.contract import Store
from cordata.store.migrate import Applied
from cordata.store.tx import Tx

#: A request is repeated; one that is older than this has expired.
TAKEOVER_S = 15.0


async def request_takeover(store: Store, migration: Applied, *, name: str, holder: str) -> None:
    """Ask whoever holds the lease to hand it over, for a migration that its program lacks.

    Raises: StoreUnavailable.
    """

    async def unit(tx: Tx) -> None:
        if await tx.fetch_one("migration.table") is not None:
            await tx.write(
                "lease.request_takeover",
                name=name,
                wanted_by=holder,
                component=migration.component,
                number=migration.number,
                wanted_at=tx.now_us,
            )

    await store.run(unit)


async def is_takeover_requested(store: Store, *, name: str, holder: str) -> bool:
    """Whether another than `holder` asks for the lease. Raises: StoreUnavailable."""

    async def unit(tx: Tx) -> bool:
        if await tx.fetch_one("migration.table") is None:
            return False
        since = tx.now_us - int(TAKEOVER_S * 1_000_000)
        row = await tx.fetch_one("lease.takeover_request", name=name, holder=holder, since=since)
        return row is not None

    return await store.read(unit)
