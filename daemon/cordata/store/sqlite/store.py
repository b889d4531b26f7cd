"""The SQLite store: one file, WAL, every commit synced, one write lock for all processes."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

from msgspec.structs import replace

from cordata import clock
from cordata.config.sections import StoreConfig
from cordata.errors import StoreUnavailable
from cordata.store.contract import StoreStats
from cordata.store.fence import Fence
from cordata.store.health import Health
from cordata.store.migrate import Schema
from cordata.store.queries import Queries
from cordata.store.runtime_store import RuntimeStore
from cordata.store.sqlite import migration
from cordata.store.sqlite.connection import Database, WriteConnection, database_path
from cordata.store.sqlite.lease import FileLease
from cordata.store.sqlite.lock import FileLock, LockQueue
from cordata.store.sqlite.reader import Reader
from cordata.store.sqlite.thread import CallThreads
from cordata.store.sqlite.transaction import Access, TransactionTx
from cordata.store.sqlite.wake import WakeUps
from cordata.store.sqlite.wal import Checkpointer, Wal
from cordata.store.sqlite.writer import Writer
from cordata.store.tx import Unit

T = TypeVar("T")

#: Closing waits at most this long for the lock; then the log is left as it is.
_CLOSE_WAIT_S = 2.0


class SqliteStore(RuntimeStore):
    """The store of one process. Made by `open`."""

    dialect = "sqlite"

    def __init__(
        self,
        config: StoreConfig,
        database: Database,
        queries: Queries,
        state_dir: Path,
        runtime_dir: Path,
    ) -> None:
        wal = Wal(database.wal_path)
        super().__init__(config, Health(has_room=wal.has_room))
        self._state_dir = state_dir
        self._file_lock = FileLock(database.lock_path)
        self._thread = CallThreads(self._loop, "store-write")
        self._lock = LockQueue(self._file_lock, self._thread, timeout_s=config.write_timeout_s)
        self._connection = WriteConnection(
            database, queries, self._lock, self._thread, self._health
        )
        self._topics = self._wake = WakeUps(runtime_dir, self._loop)
        self._checkpointer = Checkpointer(
            wal, self._connection, self._tasks, limit_bytes=config.wal_limit_bytes
        )
        self._writer = Writer(self._connection, self._tasks, committed=self._committed)
        self._reader = Reader(
            database, queries, self._loop, threads=config.readers, timeout_s=config.read_timeout_s
        )
        self._read = self._reader.read
        self._access = Access(
            self._connection,
            self._tasks,
            config.transaction_timeout_s,
            self._reader.read,
            self._committed,
        )
        self._schema = Schema(
            self.dialect,
            self._reader.read,
            lambda: self._call(migration.bootstrap),
            lambda one, fence: self._call(partial(migration.apply_one, migration=one, fence=fence)),
        )

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

    def _start(self, unit: Unit[Any], result: asyncio.Future[Any], *, batch: bool) -> None:
        self._writer.start(unit, result)

    def _begin(self, fence: Fence | None) -> TransactionTx:
        return TransactionTx(self._access, fence)

    def now_us(self) -> int:
        """As in Store."""
        return clock.now_us()

    def lease(self, *, holder: str) -> FileLease:
        """As in Store."""
        return FileLease(self, self._schema.bootstrap, self._state_dir, holder=holder)

    async def checkpoint(self) -> bool:
        """As in Store."""
        return await self._checkpointer.truncate()

    def stats(self) -> StoreStats:
        """As in Store; reads the size of the log, which takes about 15 us."""
        return replace(super().stats(), wal_bytes=self._checkpointer.wal.live_bytes())

    async def _close(self) -> None:
        await self._tasks.wait()
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

    async def _try_write(self) -> None:
        """As in RuntimeStore; before it, checkpoint the log if it is due."""
        with suppress(StoreUnavailable):  # the write has the same error
            await self._checkpointer.reduce()
        await self._writer.probe()

    def _committed(self, topics: set[str], units: int) -> None:
        super()._committed(topics, units)
        self._checkpointer.committed()
