"""The embedded store: one SQLite file, WAL, every commit synced, every process under one lock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from cordata.config.sections import StoreConfig
from cordata.errors import StoreUnavailable
from cordata.store.connection import Database, WriteConnection, database_path
from cordata.store.crew import Crew, Hand
from cordata.store.exclusive import Exclusive
from cordata.store.fence import Fence
from cordata.store.health import Health, OnState
from cordata.store.hold import Hold
from cordata.store.lock import Turn, WriteLock
from cordata.store.migrate import Applied, Chain
from cordata.store.queries import Queries
from cordata.store.reader import Reader
from cordata.store.schema import Schema
from cordata.store.solo import SoloTx, holding
from cordata.store.tx import Tx, Unit, UnitMisuse
from cordata.store.upkeep import LogKeeper, Prober
from cordata.store.wake import WakeUps
from cordata.store.wal import Checkpoint, Wal
from cordata.store.writer import Writer

T = TypeVar("T")

#: Closing waits so long for the lock; then the log is left as it is.
_CLOSE_WAIT_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStats:
    """What `Store.stats()` tells of this process; the log is everybody's."""

    #: "ok", "full" or "unavailable".
    state: str
    #: Why it is not ok.
    reason: str
    #: Units waiting for a commit.
    waiting: int
    #: Since the start.
    commits: int
    #: Since the start; units / commits is how many share a sync.
    units: int
    #: Live part of the write-ahead log.
    wal_bytes: int
    #: The file of the log, which keeps its size.
    wal_file_bytes: int


class SqliteStore:
    """The store of one process. Made by `open`; all methods belong to the loop's thread."""

    def __init__(
        self, config: StoreConfig, database: Database, queries: Queries, runtime_dir: Path
    ) -> None:
        loop = asyncio.get_running_loop()
        crew = Crew(loop)
        self._queries = queries
        self._hand = Hand(crew, "store-write")
        self._lock = WriteLock(database.lock_path)
        self._turn = Turn(self._lock, self._hand, loop, config.write_timeout_s)
        self._connection = WriteConnection(database, queries)
        self._health = Health()
        self._writer = Writer(
            self._connection,
            self._turn,
            self._hand,
            self._health,
            max_batch=config.max_batch,
            max_waiting=config.max_waiting,
            committed=self._committed,
        )
        self._hold = Hold(
            self._connection,
            self._turn,
            self._hand,
            self._health,
            timeout_s=config.transaction_timeout_s,
            committed=self._committed,
        )
        self._reader = Reader(
            database, queries, crew, threads=config.readers, timeout_s=config.read_timeout_s
        )
        self._wake = WakeUps(runtime_dir, loop)
        exclusive = Exclusive(self._connection, self._turn, self._hand)
        self._schema = Schema(self._reader, exclusive)
        self._keeper = LogKeeper(
            Wal(database.wal_path), exclusive, self._wake, limit_bytes=config.wal_limit_bytes
        )
        #: Called with state ("ok", "full", "unavailable") and reason at each change.
        self.on_state: OnState | None = None
        self._prober = Prober(self._health, self._writer, lambda: self.on_state)
        self._health.on_state = self._prober.state_changed
        self._closed = False

    @classmethod
    async def open(
        cls,
        config: StoreConfig,
        *,
        state_dir: Path,
        runtime_dir: Path,
        queries: Queries,
        on_state: OnState | None = None,
    ) -> Self:
        """Open the database file, and make it when this is the first start.

        Waits for nobody when the file exists. Raises: StoreUnavailable with the next step when it
        is missing though it was in use, damaged or not ours; ConfigError for a bad url.
        """
        database = Database(database_path(config.url, state_dir))
        store = cls(config, database, queries, runtime_dir)
        store.on_state = on_state
        try:
            anchor = database.anchor()
            if anchor is None:
                await store._turn.acquire()
                try:
                    database.create(lost=store._lock.marked)
                finally:
                    store._turn.release()
            store._reader.connect()
            if anchor is not None:
                anchor.close()
            if not store._lock.marked:
                store._lock.mark()
        except BaseException:
            await store.close()
            raise
        return store

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def run(self, unit: Unit[T], *, fence: Fence | None = None) -> T:
        """Run a unit of work; return its result once it is on disk.

        The unit shares its transaction and its sync with those of other requests, and may run more
        than once. Cancelling is safe: it then ran wholly or not at all. Raises: what the unit
        raised; Conflict when a constraint refused a statement; StoreFull, StoreUnavailable;
        LeaseLost when `fence` is stale; UnitMisuse when it awaited something else than its tx.
        """
        self._check_open()
        solo = holding.get()
        if solo is not None and solo.holds_lock_of(self._hold):
            raise UnitMisuse(
                "run() inside a transaction() would wait for it for ever",
                hint="use the transaction's own tx",
            )
        result: T = await self._writer.run(unit, fence)
        return result

    async def read(self, unit: Unit[T]) -> T:
        """Run a unit on a snapshot; never waits for writers.

        It may run more than once. Raises: what the unit raised; UnitMisuse when it writes;
        TransactionTimeout after `read_timeout_s`; StoreUnavailable.
        """
        self._check_open()
        return await self._reader.read(unit)

    @asynccontextmanager
    async def transaction(
        self, *, seen: tuple[str, str] | None = None, fence: Fence | None = None
    ) -> AsyncIterator[Tx]:
        """A transaction of its own, for code that awaits other things between its statements.

        It takes the write lock at its first write and holds it for `transaction_timeout_s` at
        most. What it read before is read again then: TransactionStale if it changed. With
        `seen=(group, event_id)` the mark is written in it, and an existing one is AlreadySeen
        before any effect. Raises: as `run`, TransactionTimeout, TransactionStale, AlreadySeen.
        """
        self._check_open()
        tx = SoloTx(self._hold, self._queries, self.read, seen, fence)
        await tx.enter()
        try:
            yield tx
        except BaseException:
            await tx.leave(commit=False)
            raise
        await tx.leave(commit=True)

    def notify(self, topic: str) -> None:
        """Wake whoever waits for a topic, in this process and in others."""
        self._wake.notify((topic,))

    async def wait(self, topic: str, timeout_s: float) -> bool:
        """Wait to be woken: True, or False after the timeout. Costs nothing meanwhile.

        A wake-up between two waits of a task counts for the second one, so: look at the tables,
        then wait, again and again, in one task. Several tasks may wait for one topic.
        """
        return await self._wake.topic(topic).wait(timeout_s)

    async def bootstrap(self) -> None:
        """Make the tables that the lease and the migrations themselves need."""
        await self._schema.bootstrap()

    async def migrate(
        self,
        chains: Sequence[Chain],
        *,
        fence: Fence | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> list[Applied]:
        """Apply what is pending, the runtime's own chain first; `progress(text)` before each.

        Each in a transaction of its own under the write lock. Raises: SchemaError when the chains
        and the database do not fit together or a script fails; LeaseLost; StoreUnavailable.
        """
        return await self._schema.migrate(chains, fence, progress)

    async def schema_current(self, chains: Sequence[Chain]) -> bool:
        """Whether nothing is pending. Raises: SchemaError when the schema is too new for us."""
        return not await self._schema.pending(chains)

    async def pending(self, chains: Sequence[Chain]) -> list[Applied]:
        """The migrations that `migrate` would apply. Raises: SchemaError."""
        todo = await self._schema.pending(chains)
        return [Applied(m.component, m.number, m.name) for m in todo]

    async def checkpoint(self, *, force: bool = False) -> Checkpoint | None:
        """Fold the log back into the database file when it is over its limit; None: it is not.

        Raises: StoreUnavailable.
        """
        return await self._keeper.checkpoint(force=force)

    @property
    def waiting(self) -> int:
        """Units waiting for a commit."""
        return self._writer.waiting

    def stats(self) -> StoreStats:
        """Numbers of this process and the size of the log, which is read for it: some 15 us."""
        return StoreStats(
            state=self._health.state,
            reason=self._health.reason,
            waiting=self.waiting,
            commits=self._writer.commits,
            units=self._writer.units,
            wal_bytes=self._keeper.wal.live_bytes(),
            wal_file_bytes=self._keeper.wal.file_bytes(),
        )

    async def close(self) -> None:
        """Take nothing more, finish what waits, then close. Twice is fine."""
        if self._closed:
            return
        self._closed = True
        await self._writer.drain()
        self._prober.stop()
        # The last connection of all folds the log back as it closes: a checkpoint, so locked.
        locked = False
        try:
            async with asyncio.timeout(_CLOSE_WAIT_S):
                await self._turn.acquire()
            locked = True
        except (TimeoutError, StoreUnavailable):
            pass
        self._reader.close()
        self._connection.discard()
        self._wake.close()
        if locked:
            self._turn.release()
        if not self._hand.busy:  # else its thread still waits on this very file descriptor
            self._lock.close()
        self._hand.stop()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("the store is closed")

    def _committed(self, topics: set[str]) -> None:
        if topics:
            self._wake.notify(topics)
        self._keeper.committed()
