"""How each store is opened for the behaviour suite; a second store is one more line in STORES."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from cordata.config.sections import StoreConfig
from cordata.store import Chain, Queries, Store, Tx, open_store

SQL = "tests.contract.store.sql"
CHAINS = (Chain("contract", SQL),)


@asynccontextmanager
async def sqlite(folder: Path, config: StoreConfig) -> AsyncIterator[Store]:
    """The embedded store, in a folder."""
    store = await open_store(
        config,
        state_dir=folder,
        runtime_dir=folder,
        queries=Queries.load([SQL], "sqlite"),
    )
    async with store:
        await store.migrate(CHAINS)
        yield store


STORES: dict[str, Callable[[Path, StoreConfig], AbstractAsyncContextManager[Store]]] = {
    "sqlite": sqlite,
}


async def notes(store: Store) -> list[str]:
    """What the entries say, sorted."""

    async def unit(tx: Tx) -> list[str]:
        return [row["note"] for row in await tx.fetch_all("entry.notes")]

    return await store.read(unit)


async def add_account(store: Store, name: str, balance: int = 0) -> None:
    """An account."""

    async def unit(tx: Tx) -> None:
        await tx.execute("account.add", id=name, balance=balance)

    await store.run(unit)


async def balance(store: Store, name: str) -> int | None:
    """What an account holds; None: there is no such account."""

    async def unit(tx: Tx) -> int | None:
        row = await tx.fetch_one("account.get", id=name)
        return None if row is None else int(row["balance"])

    return await store.read(unit)
