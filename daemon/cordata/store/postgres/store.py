"""The PostgreSQL store: one database for every process of every host."""

from __future__ import annotations

import asyncio
from typing import Any, Self, TypeVar

from cordata.config.sections import StoreConfig
from cordata.store.fence import Fence
from cordata.store.health import Health
from cordata.store.migrate import Schema
from cordata.store.postgres.address import addresses
from cordata.store.postgres.batch import Batcher
from cordata.store.postgres.clock import FleetClock
from cordata.store.postgres.connection import Connection
from cordata.store.postgres.connector import Connector
from cordata.store.postgres.lease import SessionLease
from cordata.store.postgres.migration import Migrator
from cordata.store.postgres.notifier import Notifier
from cordata.store.postgres.pool import Pool
from cordata.store.postgres.probe import try_write
from cordata.store.postgres.reader import Reader
from cordata.store.postgres.replay import ReplayedTx
from cordata.store.postgres.unit_runner import Entry, Resources, UnitRunner
from cordata.store.queries import Queries
from cordata.store.runtime_store import RuntimeStore
from cordata.store.tx import Unit, before_write

T = TypeVar("T")

#: Closing waits at most this long for units under way.
_CLOSE_WAIT_S = 15.0


class PostgresStore(RuntimeStore):
    """The store of one process. Made by `open`."""

    dialect = "postgres"

    def __init__(self, config: StoreConfig, queries: Queries, password: str | None) -> None:
        super().__init__(config, Health())
        self._config = config
        self._clock = FleetClock()
        self._connector = Connector(*addresses(config, password), config, self._clock)
        self._pool = Pool(self._connector.connect, size=config.pool_size)
        self._resources = Resources(
            pool=self._pool,
            tasks=self._tasks,
            connector=self._connector,
            queries=queries,
            clock=self._clock,
            health=self._health,
            turn=asyncio.Lock(),
            committed=self._committed,
        )
        self._runner = UnitRunner(self._resources, config)
        self._batcher = Batcher(self._resources, self._runner, config)
        self._reader = Reader(self._resources, config)
        self._read = self._reader.read
        #: Limit of open transactions; some connections are always left for units and reads.
        self._slots = asyncio.Semaphore(max(1, config.pool_size - config.pool_size // 4 - 1))
        self._topics = self._notifier = Notifier(self._connector)
        #: Sessions of leases; closed with the store, also while they wait for their lock.
        self._sessions: list[Connection] = []
        migrator = Migrator(self._resources)
        self._schema = Schema(self.dialect, self.read, migrator.bootstrap, migrator.apply_one)

    @classmethod
    async def open(
        cls,
        config: StoreConfig,
        *,
        queries: Queries,
        password: str | None = None,
    ) -> Self:
        """Connect. Raises: ConfigError for a bad url; StoreUnavailable with the reason."""
        store = cls(config, queries, password)
        await store._notifier.open()
        await store._tasks.open()
        store._notifier.start(store._tasks)
        return store

    def now_us(self) -> int:
        """As in Store: the server's."""
        return self._clock.now_us()

    def _start(self, unit: Unit[Any], result: asyncio.Future[Any], *, batch: bool) -> None:
        entry = Entry(unit, result)
        if batch and before_write.get() is None:
            self._batcher.start(entry)
        else:
            self._runner.start(entry)

    def _begin(self, fence: Fence | None) -> ReplayedTx:
        return ReplayedTx(
            self._resources, self._runner, self._slots, self.read, self._config, fence=fence
        )

    def lease(self, *, holder: str) -> SessionLease:
        """As in Store."""
        return SessionLease(
            self._connect_session,
            self._runner,
            self._reader,
            self._schema,
            self._tasks,
            holder=holder,
        )

    async def checkpoint(self) -> bool:
        """Do nothing: the server makes its own checkpoints."""
        return True

    async def _try_write(self) -> None:
        await try_write(self._runner, self._resources)

    async def _close(self) -> None:
        if self._results:
            await asyncio.wait(self._results, timeout=_CLOSE_WAIT_S)
        await self._notifier.finish()
        self._pool.close()
        for session in self._sessions:
            session.close()
        await self._tasks.close()

    async def _connect_session(self) -> Connection:
        """A session of its own, for a lease. Raises: StoreUnavailable."""
        self._check_open()
        session = await self._connector.connect_session()
        self._sessions = [one for one in self._sessions if not one.lost]
        self._sessions.append(session)
        return session
