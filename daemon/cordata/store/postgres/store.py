"""The PostgreSQL store: one database for every process of every host."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Self, TypeVar

from cordata.config.sections import StoreConfig
from cordata.errors import StoreUnavailable
from cordata.store.contract import Store, StoreStats
from cordata.store.fence import Fence, with_fence
from cordata.store.health import Health, HealthProbe
from cordata.store.migrate import Chain, MigrationId, Schema
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
from cordata.store.postgres.replay import ReplayedTx, holding
from cordata.store.postgres.unit_runner import Entry, Resources, UnitRunner
from cordata.store.queries import Queries
from cordata.store.tasks import StoreTasks
from cordata.store.tx import Tx, Unit, UnitMisuse, before_write
from cordata.unawaited import require_awaits

T = TypeVar("T")

#: Closing waits at most this long for units under way.
_CLOSE_WAIT_S = 15.0


class PostgresStore(Store):
    """The store of one process. Made by `open`; all methods belong to the loop's thread."""

    dialect = "postgres"

    def __init__(self, config: StoreConfig, queries: Queries, password: str | None) -> None:
        self._config = config
        self._clock = FleetClock()
        self._connector = Connector(*addresses(config, password), config, self._clock)
        self._tasks = StoreTasks()
        self._pool = Pool(self._connector.connect, size=config.pool_size)
        self._health = Health()
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
        #: Limit of open transactions; some connections are always left for units and reads.
        self._slots = asyncio.Semaphore(max(1, config.pool_size - config.pool_size // 4 - 1))
        self._probe = HealthProbe(
            self._health, lambda: self._tasks.start(try_write(self._runner, self._resources))
        )
        self._notifier = Notifier(self._connector)
        #: Sessions of leases; closed with the store, also while they wait for their lock.
        self._sessions: list[Connection] = []
        migrator = Migrator(self._resources)
        self._schema = Schema(self.dialect, self.read, migrator.bootstrap, migrator.apply_one)
        self._closing: asyncio.Future[None] | None = None

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

    async def run(
        self,
        unit: Unit[T],
        *,
        batch: bool = False,
        fence: Fence | None = None,
    ) -> T:
        """As in Store."""
        self._check_open()
        held = holding.get()
        if held is not None and held.holds_locks_of(self._resources):
            raise UnitMisuse(
                "run() inside a transaction() might wait for it for ever",
                hint="use the transaction's own tx",
            )
        if (refusal := self._health.error()) is not None:
            raise refusal
        if self.waiting >= self._config.max_waiting:
            raise StoreUnavailable(f"{self.waiting} units wait for a commit", retry_after_s=1)
        entry = Entry(with_fence(unit, fence, lock_term=True))
        if batch and fence is None and before_write.get() is None:
            self._batcher.start(entry)
        else:
            self._runner.start(entry)
        result: T = await entry.future
        return result

    async def read(self, unit: Unit[T]) -> T:
        """As in Store."""
        self._check_open()
        return await self._reader.read(unit)

    @asynccontextmanager
    async def transaction(self, *, fence: Fence | None = None) -> AsyncIterator[Tx]:
        """As in Store."""
        self._check_open()
        tx = ReplayedTx(
            self._resources, self._runner, self._slots, self.read, self._config, fence=fence
        )
        try:
            with require_awaits():
                yield tx
        except BaseException:
            await tx.leave(commit=False)
            raise
        await tx.leave(commit=True)

    def notify(self, topic: str) -> None:
        """As in Store."""
        self._notifier.notify((topic,))

    async def wait(self, topic: str, timeout_s: float) -> bool:
        """As in Store."""
        return await self._notifier.topic(topic).wait(timeout_s)

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

    async def migrate(
        self,
        chains: Sequence[Chain],
        *,
        fence: Fence | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> list[MigrationId]:
        """As in Store; one process at a time."""
        return await self._schema.migrate(chains, fence, progress)

    async def pending(self, chains: Sequence[Chain]) -> list[MigrationId]:
        """As in Store."""
        return await self._schema.pending(chains)

    async def checkpoint(self, *, force: bool = False) -> None:
        """Do nothing: the server makes its own checkpoints."""

    @property
    def waiting(self) -> int:
        """As in Store."""
        return self._runner.waiting + self._batcher.waiting

    def observe_commits(self, observe: Callable[[float], None]) -> None:
        """As in RuntimeStore."""
        self._health.on_commit = observe

    def error(self) -> StoreUnavailable | None:
        """As in Store."""
        return self._health.error()

    def stats(self) -> StoreStats:
        """As in Store."""
        return StoreStats(
            state=self._health.state,
            reason=self._health.reason,
            commits=self._runner.commits + self._batcher.commits,
            units=self._runner.commits + self._batcher.units,
        )

    async def close(self) -> None:
        """As in Store."""
        if self._closing is not None:
            await asyncio.shield(self._closing)
            return
        self._closing = asyncio.get_running_loop().create_future()
        try:
            try:
                async with asyncio.timeout(_CLOSE_WAIT_S):
                    await self._drain()
            except TimeoutError:
                self._runner.close()
                self._batcher.close()
            await self._notifier.finish()
            self._probe.stop()
            self._pool.close()
            for session in self._sessions:
                session.close()
            await self._tasks.close()
        finally:
            self._closing.set_result(None)

    async def _connect_session(self) -> Connection:
        """A session of its own, for a lease. Raises: StoreUnavailable."""
        self._check_open()
        session = await self._connector.connect_session()
        self._sessions = [one for one in self._sessions if not one.lost]
        self._sessions.append(session)
        return session

    async def _drain(self) -> None:
        """Wait until no unit waits any more."""
        drained = asyncio.Event()
        self._runner.on_idle = self._batcher.on_idle = drained.set
        while self.waiting:
            await drained.wait()
            drained.clear()

    def _check_open(self) -> None:
        if self._closing is not None:
            raise StoreUnavailable("the store is closed")

    def _committed(self, topics: set[str]) -> None:
        if topics:
            self._notifier.notify(topics)
