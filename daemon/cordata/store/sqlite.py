"""The embedded store: one SQLite file, WAL, every commit synced."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from cordata import clock
from cordata.config.sections import StoreConfig
from cordata.errors import AlreadySeen, LeaseLost
from cordata.store.lease import Fence
from cordata.store.migrate import Applied, Chain, apply, pending
from cordata.store.queries import Queries
from cordata.store.tx import Tx, Unit, drive

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStats:
    """What `Store.stats()` tells."""

    #: "ok", "full" or "unavailable".
    state: str
    #: Units waiting for a commit.
    waiting: int
    commits: int
    units: int
    wal_bytes: int


class SqliteStore:
    """First form: every call runs on the loop's thread."""

    def __init__(self, connection: sqlite3.Connection, lock: int, path: Path, queries: Queries):
        self._connection = connection
        self._lock = lock
        self._path = path
        self._queries = queries
        self._turn = asyncio.Lock()
        self._topics: dict[str, asyncio.Event] = {}
        self._units = 0

    @classmethod
    async def open(
        cls, config: StoreConfig, *, state_dir: Path, runtime_dir: Path, queries: Queries
    ) -> SqliteStore:
        """Open or create `<state>/cordata.db`."""
        path = state_dir / "cordata.db"
        connection = sqlite3.connect(path, isolation_level=None)
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA foreign_keys=ON")
        lock = os.open(state_dir / "write.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return cls(connection, lock, path, queries)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @asynccontextmanager
    async def _exclusive(self, fence: Fence | None) -> AsyncIterator[Tx]:
        async with self._turn:
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            try:
                topics: set[str] = set()
                self._connection.execute("BEGIN IMMEDIATE")
                try:
                    tx = Tx(self._connection.cursor(), self._queries, topics, clock.now_us())
                    if fence is not None:
                        row = await tx.fetch_one("lease.term", name=fence.name)
                        if row is None or row["term"] != fence.term:
                            raise LeaseLost()
                    yield tx
                    self._connection.execute("COMMIT")
                except BaseException:
                    self._connection.execute("ROLLBACK")
                    raise
            finally:
                fcntl.flock(self._lock, fcntl.LOCK_UN)
        self._units += 1
        for topic in topics:
            self.notify(topic)

    async def run(self, unit: Unit[T], *, fence: Fence | None = None) -> T:
        """Run a unit in a transaction; return its result after the commit."""
        async with self._exclusive(fence) as tx:
            return drive(unit(tx), tx)

    async def read(self, unit: Unit[T]) -> T:
        """Run a unit on a snapshot; writes are refused."""
        async with self._turn:
            tx = Tx(self._connection.cursor(), self._queries, set(), clock.now_us())
            self._connection.execute("PRAGMA query_only=ON")
            try:
                return drive(unit(tx), tx)
            finally:
                self._connection.execute("PRAGMA query_only=OFF")

    @asynccontextmanager
    async def transaction(
        self, *, seen: tuple[str, str] | None = None, fence: Fence | None = None
    ) -> AsyncIterator[Tx]:
        """The solo form, for code that awaits other things between its statements."""
        async with self._exclusive(fence) as tx:
            if seen is not None:
                group, event_id = seen
                done = await tx.execute(
                    "seen.add", group=group, event_id=event_id, created_at=tx.now_us
                )
                if not done:
                    raise AlreadySeen()
            yield tx

    def notify(self, topic: str) -> None:
        """Wake whoever waits for a topic."""
        self._topics.setdefault(topic, asyncio.Event()).set()

    async def wait(self, topic: str, timeout_s: float) -> bool:
        """Wait until a topic is notified; False after the timeout."""
        event = self._topics.setdefault(topic, asyncio.Event())
        try:
            async with asyncio.timeout(timeout_s):
                await event.wait()
        except TimeoutError:
            return False
        event.clear()
        return True

    async def migrate(
        self,
        chains: Sequence[Chain],
        *,
        fence: Fence | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> list[Applied]:
        """Apply what is pending."""
        async with self._turn:
            return apply(self._connection, chains, progress)

    async def schema_current(self, chains: Sequence[Chain]) -> bool:
        """Whether nothing is pending."""
        return not pending(self._connection, chains)

    def stats(self) -> StoreStats:
        """Counters since the start."""
        return StoreStats(
            state="ok", waiting=0, commits=self._units, units=self._units, wal_bytes=0
        )

    async def close(self) -> None:
        """Close the file."""
        self._connection.close()
        os.close(self._lock)
