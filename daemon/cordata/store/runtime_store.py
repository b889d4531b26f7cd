"""The store of one process: what SQLite and PostgreSQL have in common.

    run() -> refused: closed, not ok, too many wait
          -> started by the subclass --COMMIT--> topics notified, result

The subclass runs units, reads and transactions; this class has the rules around them.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from typing import Any, TypeVar

from cordata.config.sections import StoreConfig
from cordata.errors import StoreUnavailable
from cordata.store.contract import Lease, Store, StoreStats
from cordata.store.fence import Fence, with_fence
from cordata.store.health import Health
from cordata.store.migrate import Chain, MigrationId, Schema
from cordata.store.tasks import StoreTasks, close_future
from cordata.store.topic import Topics
from cordata.store.tx import Tx, Unit, UnitMisuse
from cordata.unawaited import require_awaits

T = TypeVar("T")


class BlockTx(Tx):
    """The Tx of `Store.transaction()`."""

    @abstractmethod
    def holds_locks_of(self, health: Health) -> bool:
        """Whether it is past its first write and not at its end, in the store of this health."""

    @abstractmethod
    async def leave(self, *, commit: bool) -> None:
        """End the transaction after its block. Raises: the error that prevents the commit."""


#: The transaction whose locks the running code holds; run() would wait for it for ever. Set by the
#: transaction at its first write.
holding: ContextVar[BlockTx | None] = ContextVar("cordata_store_holding", default=None)


class RuntimeStore(Store):
    """A store with the methods that only the runtime uses: leases, migrations, fenced writes."""

    #: Set by the subclass.
    _topics: Topics
    _schema: Schema
    #: Runs a unit on a snapshot.
    _read: Callable[[Unit[Any]], Awaitable[Any]]

    def __init__(self, config: StoreConfig, health: Health) -> None:
        self._max_waiting = config.max_waiting
        self._health = health
        health.on_state = self._state_changed
        self._tasks = StoreTasks()
        self._loop = asyncio.get_running_loop()
        #: The results of the units that callers wait for.
        self._results: set[asyncio.Future[Any]] = set()
        self._commits = 0
        self._units = 0
        #: The attempts to write while the store is not ok.
        self._healing: asyncio.Future[None] | None = None
        self._stop = asyncio.Event()
        self._closing: asyncio.Future[None] | None = None

    @abstractmethod
    def _start(self, unit: Unit[Any], result: asyncio.Future[Any], *, batch: bool) -> None:
        """Start a unit, which ends with its result."""

    @abstractmethod
    def _begin(self, fence: Fence | None) -> BlockTx:
        """The Tx of a new `transaction()`."""

    @abstractmethod
    async def _try_write(self) -> None:
        """Write something; the result changes the health."""

    @abstractmethod
    async def _close(self) -> None:
        """As `Store.close`, called once."""

    @abstractmethod
    def lease(self, *, holder: str) -> Lease:
        """The lease of the primary; `holder` is a text for people."""

    async def run(self, unit: Unit[T], *, batch: bool = False, fence: Fence | None = None) -> T:
        """As in Store. Raises: also LeaseLost, when `fence` is stale."""
        self._check_open()
        transaction = holding.get()
        if transaction is not None and transaction.holds_locks_of(self._health):
            raise UnitMisuse(
                "run() inside a transaction() would wait for it for ever",
                hint="use the transaction's own tx",
            )
        if (refusal := self._health.error()) is not None:
            raise refusal
        if (waiting := len(self._results)) >= self._max_waiting:
            raise StoreUnavailable(f"{waiting} units wait for a commit", retry_after_s=1)
        result: asyncio.Future[T] = self._loop.create_future()
        self._results.add(result)
        try:
            if fence is None:
                self._start(unit, result, batch=batch)
            else:
                self._start(with_fence(unit, fence), result, batch=False)
            return await result
        finally:
            self._results.discard(result)

    async def read(self, unit: Unit[T]) -> T:
        """As in Store."""
        self._check_open()
        result: T = await self._read(unit)
        return result

    @asynccontextmanager
    async def transaction(self, *, fence: Fence | None = None) -> AsyncIterator[Tx]:
        """As in Store. Raises: also LeaseLost, when `fence` is stale."""
        self._check_open()
        tx = self._begin(fence)
        try:
            with require_awaits():
                yield tx
        except BaseException:
            await tx.leave(commit=False)
            raise
        await tx.leave(commit=True)

    def notify(self, topic: str) -> None:
        """As in Store."""
        self._topics.notify((topic,))

    async def wait(self, topic: str, timeout_s: float) -> bool:
        """As in Store."""
        return await self._topics.topic(topic).wait(timeout_s)

    async def migrate(
        self,
        chains: Sequence[Chain],
        *,
        fence: Fence | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> list[MigrationId]:
        """Apply the pending migrations, those of the runtime first. Returns them.

        Each runs in a separate transaction; `progress(text)` is called before it. Raises:
        SchemaError when chains and database do not match, or a script fails; LeaseLost;
        StoreUnavailable.
        """
        return await self._schema.migrate(chains, fence, progress)

    async def pending(self, chains: Sequence[Chain]) -> list[MigrationId]:
        """As in Store."""
        return await self._schema.pending(chains)

    def observe_commits(self, observe: Callable[[float], None]) -> None:
        """Have `observe` called with the seconds of each COMMIT of this process."""
        self._health.on_commit = observe

    @property
    def waiting(self) -> int:
        """As in Store."""
        return len(self._results)

    def error(self) -> StoreUnavailable | None:
        """As in Store."""
        return self._health.error()

    def stats(self) -> StoreStats:
        """As in Store."""
        return StoreStats(
            state=self._health.state,
            reason=self._health.reason,
            commits=self._commits,
            units=self._units,
        )

    async def close(self) -> None:
        """As in Store. A second call waits for the first one."""
        if self._closing is not None:
            await asyncio.shield(self._closing)
            return
        self._closing = self._loop.create_future()
        self._stop.set()
        try:
            await self._close()
        finally:
            for result in self._results:
                close_future(result)
            self._closing.set_result(None)

    def _check_open(self) -> None:
        if self._closing is not None:
            raise StoreUnavailable("the store is closed")

    def _state_changed(self, state: str) -> None:
        if state != "ok" and (self._healing is None or self._healing.done()):
            self._healing = self._tasks.start(self._heal())

    async def _heal(self) -> None:
        """Try to write from time to time until the store is ok, so that it recovers without
        traffic.
        """
        while self._health.state != "ok" and not self._stop.is_set():
            try:
                async with asyncio.timeout(self._health.pause_s):
                    await self._stop.wait()
            except TimeoutError:
                if self._health.state != "ok":
                    with suppress(Exception):  # the health has it; nothing ends the attempts
                        await self._try_write()

    def _committed(self, topics: set[str], units: int) -> None:
        """Count a COMMIT of so many units (0: nothing was written), and notify their topics."""
        self._commits += units > 0
        self._units += units
        if topics:
            self._topics.notify(topics)
