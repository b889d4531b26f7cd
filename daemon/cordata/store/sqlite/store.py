"""The SQLite store: one file, WAL, every commit synced, one write lock for all processes."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

from cordata import clock
from cordata.config.sections import StoreConfig
from cordata.errors import StoreUnavailable
from cordata.store.contract import Store, StoreStats
from cordata.store.fence import Fence, with_fence
from cordata.store.health import Health, HealthProbe
from cordata.store.migrate import Chain, MigrationId, Schema
from cordata.store.queries import Queries
from cordata.store.sqlite import migration
from cordata.store.sqlite.connection import Database, WriteConnection, database_path
from cordata.store.sqlite.lease import FileLease
from cordata.store.sqlite.lock import FileLock, LockQueue
from cordata.store.sqlite.reader import Reader
from cordata.store.sqlite.thread import CallThreads
from cordata.store.sqlite.transaction import Access, TransactionTx, holding
from cordata.store.sqlite.wake import WakeUps
from cordata.store.sqlite.wal import Checkpointer, Wal
from cordata.store.sqlite.writer import Writer
from cordata.store.tasks import StoreTasks
from cordata.store.tx import Tx, Unit, UnitMisuse
from cordata.unawaited import require_awaits

T = TypeVar("T")

#: Closing waits at most this long for the lock; then the log is left as it is.
_CLOSE_WAIT_S = 2.0


class SqliteStore(Store):
    """The store of one process. Made by `open`; all methods belong to the loop's thread."""

    dialect = "sqlite"

    def __init__(
        self,
        config: StoreConfig,
        database: Database,
        queries: Queries,
        state_dir: Path,
        runtime_dir: Path,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._state_dir = state_dir
        self._file_lock = FileLock(database.lock_path)
        self._thread = CallThreads(loop, "store-write")
        self._lock = LockQueue(self._file_lock, self._thread, timeout_s=config.write_timeout_s)
        wal = Wal(database.wal_path)
        self._health = Health(has_room=wal.has_room)
        self._connection = WriteConnection(
            database, queries, self._lock, self._thread, self._health
        )
        self._tasks = StoreTasks()
        self._writer = Writer(
            self._connection,
            self._tasks,
            self._health,
            max_waiting=config.max_waiting,
            committed=self._committed,
        )
        self._reader = Reader(
            database, queries, loop, threads=config.readers, timeout_s=config.read_timeout_s
        )
        self._access = Access(
            self._connection,
            queries,
            self._tasks,
            self._health,
            config.transaction_timeout_s,
            self._reader.read,
            self._transaction_committed,
        )
        #: Commits of transaction().
        self._transactions = 0
        self._wake = WakeUps(runtime_dir, loop)
        self._schema = Schema(
            self.dialect,
            self._reader.read,
            lambda: self._call(migration.bootstrap),
            lambda one, fence: self._call(partial(migration.apply_one, migration=one, fence=fence)),
        )
        self._checkpointer = Checkpointer(
            wal,
            self._connection,
            self._tasks,
            self._wake,
            limit_bytes=config.wal_limit_bytes,
        )
        self._probe = HealthProbe(self._health, self._writer.probe)
        self._closed = False

    @classmethod
    async def open(
        cls,
        config: StoreConfig,
        *,
        state_dir: Path,
        runtime_dir: Path,
        queries: Queries,
    ) -> Self:
        """Open the database file; create it at the first start.

        Does not wait when the file exists. Raises: StoreUnavailable with the next step when the
        file is lost, damaged or not accessible; ConfigError for a bad url.
        """
        database = Database(database_path(config.url, state_dir))
        store = cls(config, database, queries, state_dir, runtime_dir)
        await store._tasks.open()
        try:
            anchor = database.anchor()
            if anchor is None:
                await store._lock.acquire()
                try:
                    database.create(lost=store._file_lock.marked)
                finally:
                    store._lock.release()
            store._reader.connect()
            if anchor is not None:
                anchor.close()
            if not store._file_lock.marked:
                store._file_lock.mark()
        except BaseException:
            await store.close()
            raise
        return store

    async def run(
        self,
        unit: Unit[T],
        *,
        batch: bool = False,
        fence: Fence | None = None,
    ) -> T:
        """As in Store."""
        self._check_open()
        transaction = holding.get()
        if transaction is not None and transaction.holds_lock_of(self._connection):
            raise UnitMisuse(
                "run() inside a transaction() would wait for it for ever",
                hint="use the transaction's own tx",
            )
        result: T = await self._writer.run(with_fence(unit, fence))
        return result

    async def read(self, unit: Unit[T]) -> T:
        """As in Store."""
        self._check_open()
        return await self._reader.read(unit)

    @asynccontextmanager
    async def transaction(self, *, fence: Fence | None = None) -> AsyncIterator[Tx]:
        """As in Store. Its lock is the write lock, so no other process writes meanwhile."""
        self._check_open()
        tx = TransactionTx(self._access, fence)
        try:
            with require_awaits():
                yield tx
        except BaseException:
            await tx.leave(commit=False)
            raise
        await tx.leave(commit=True)

    def notify(self, topic: str) -> None:
        """As in Store."""
        self._wake.notify((topic,))

    async def wait(self, topic: str, timeout_s: float) -> bool:
        """As in Store."""
        return await self._wake.topic(topic).wait(timeout_s)

    def now_us(self) -> int:
        """As in Store."""
        return clock.now_us()

    def lease(self, *, holder: str) -> FileLease:
        """As in Store."""
        return FileLease(self, self._schema.bootstrap, self._state_dir, holder=holder)

    async def migrate(
        self,
        chains: Sequence[Chain],
        *,
        fence: Fence | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> list[MigrationId]:
        """As in Store; each under the write lock."""
        return await self._schema.migrate(chains, fence, progress)

    async def pending(self, chains: Sequence[Chain]) -> list[MigrationId]:
        """As in Store."""
        return await self._schema.pending(chains)

    async def checkpoint(self, *, force: bool = False) -> bool | None:
        """As in Store."""
        return await self._checkpointer.checkpoint(force=force)

    @property
    def waiting(self) -> int:
        """As in Store."""
        return self._writer.waiting

    def observe_commits(self, observe: Callable[[float], None]) -> None:
        """As in RuntimeStore."""
        self._health.on_commit = observe

    def error(self) -> StoreUnavailable | None:
        """As in Store."""
        return self._health.error()

    def stats(self) -> StoreStats:
        """As in Store; reads the size of the log, which takes about 15 us."""
        return StoreStats(
            state=self._health.state,
            reason=self._health.reason,
            commits=self._writer.commits + self._transactions,
            units=self._writer.units + self._transactions,
            wal_bytes=self._checkpointer.wal.live_bytes(),
        )

    async def close(self) -> None:
        """As in Store."""
        if self._closed:
            return
        self._closed = True
        await self._tasks.wait()
        self._probe.stop()
        # Closing the last connection makes a checkpoint, which needs the lock.
        locked = False
        try:
            async with asyncio.timeout(_CLOSE_WAIT_S):
                await self._lock.acquire()
            locked = True
        except (TimeoutError, StoreUnavailable):
            pass
        self._reader.close()
        self._connection.close()
        self._wake.close()
        if locked:
            self._lock.release()
        if not self._thread.busy:  # else it still waits on this very file descriptor
            self._lock.release_file()  # a transaction() that is still open may hold it
            self._file_lock.close()
        self._thread.stop()
        await self._tasks.close()

    def _call(self, function: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        """Call a blocking function with the write connection, under the lock.

        Cancelling does not stop the call.
        """
        return asyncio.shield(self._tasks.start(self._connection.call(function)))

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("the store is closed")

    def _transaction_committed(self, topics: set[str]) -> None:
        self._transactions += 1
        self._committed(topics)

    def _committed(self, topics: set[str]) -> None:
        if topics:
            self._wake.notify(topics)
        self._checkpointer.committed()
