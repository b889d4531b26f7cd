"""Who waits for a lease that another holds, and has a reason to get it: newer migrations."""

from __future__ import annotations

from cordata.store.contract import Store
from cordata.store.migrate import Applied
from cordata.store.tx import Tx

#: A wish is repeated; one that is older than this is given up.
WISH_S = 15.0


async def wish_for(store: Store, migration: Applied, *, name: str, holder: str) -> None:
    """Ask whoever holds the lease to hand it over, for a migration that his program lacks.

    Raises: StoreUnavailable.
    """

    async def unit(tx: Tx) -> None:
        if await tx.fetch_one("migration.table") is not None:
            await tx.write(
                "lease.wish",
                name=name,
                wanted_by=holder,
                component=migration.component,
                number=migration.number,
                wanted_at=tx.now_us,
            )

    await store.run(unit)


async def wished_by_another(store: Store, *, name: str, holder: str) -> bool:
    """Whether another than `holder` asks for the lease. Raises: StoreUnavailable."""

    async def unit(tx: Tx) -> bool:
        if await tx.fetch_one("migration.table") is None:
            return False
        since = tx.now_us - int(WISH_S * 1_000_000)
        row = await tx.fetch_one("lease.wished", name=name, holder=holder, since=since)
        return row is not None

    return await store.read(unit)
