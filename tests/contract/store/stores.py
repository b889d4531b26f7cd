"""How each store is opened for the behaviour suite, and what a test needs to know of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from tests.queries import queries_of
from tests.waiting import until_async

from cordata.config.sections import StoreConfig
from cordata.store import Chain, Lease, RuntimeStore, Store, Tx, open_store

SQL = "tests.contract.store.sql"
CHAINS = (Chain("contract", SQL),)


STORES = ("postgres", "sqlite")


class Opener:
    """`async with opened() as store`: a migrated store; each call is one more process' view."""

    def __init__(self, dialect: str, url: str, folder: Path, **settings: object) -> None:
        """`url`: of an empty database. `folder`: where an embedded store has its file."""
        self.dialect = dialect
        self.url = url
        self.folder = folder
        self._settings = settings

    def __call__(self, **changes: object) -> AbstractAsyncContextManager[RuntimeStore]:
        """A store with some settings changed.

        Where hundreds of units change one row, or lock crosswise, a busy machine takes longer than
        a unit may usually wait.
        """
        settings = {"write_timeout_s": 60.0, **self._settings, **changes}
        return self._open(StoreConfig(url=self.url, **settings))  # type: ignore[arg-type]

    @asynccontextmanager
    async def _open(self, config: StoreConfig) -> AsyncIterator[RuntimeStore]:
        store = await open_store(
            config,
            state_dir=self.folder,
            runtime_dir=self.folder,
            queries=queries_of(self.dialect, SQL),
        )
        async with store:
            await store.migrate(CHAINS)
            yield store

    async def end_lock(self, lease: Lease) -> None:
        """The lock of a lease dies, as with its process; returns once the lease knows."""
        if self.dialect == "sqlite":
            (self.folder / "primary.lock").unlink()
        else:
            import psycopg

            async with await psycopg.AsyncConnection.connect(self.url) as connection:
                await connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'"
                    " AND database = (SELECT oid FROM pg_database"
                    " WHERE datname = current_database())"
                )
        await until_async(lambda: not lease.held)


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
