"""`Store.transaction()`: for code that awaits other things between its statements.

    reading --first write: lock, read again, compare--> writing --leave--> commit
       |                          | changed                | too long
       leave: nothing to do       TransactionStale         rolled back, TransactionTimeout

Until its first write it has neither lock nor snapshot: each statement sees the newest committed
state. The first write takes the lock, repeats all reads, and continues only if their results are
unchanged. So its decisions are still right when it commits, and a handler that waits a minute for
another service does not block the restart of the log.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cordata import clock
from cordata.errors import (
    CordataError,
    StoreUnavailable,
    TransactionStale,
    TransactionTimeout,
)
from cordata.store.fence import Fence, lock_fence
from cordata.store.health import Health
from cordata.store.queries import Query
from cordata.store.runtime_store import BlockTx, holding
from cordata.store.sqlite.connection import WriteConnection
from cordata.store.sqlite.fault import after_commit
from cordata.store.sqlite.tx import SqliteTx
from cordata.store.tasks import StoreTasks
from cordata.store.tx import Row, Tx, UnitMisuse


@dataclass(frozen=True, slots=True)
class Access:
    """The parts that the transactions of one store use."""

    connection: WriteConnection
    tasks: StoreTasks
    #: How long one may hold the lock.
    timeout_s: float
    read: Callable[[Callable[[Tx], Awaitable[Any]]], Awaitable[Any]]
    #: Called with the topics of a commit, and the number of units in it.
    committed: Callable[[set[str], int], None]


class TransactionTx(SqliteTx, BlockTx):
    """The Tx of `Store.transaction()`: takes the lock and begins before its first write."""

    def __init__(self, access: Access, fence: Fence | None) -> None:
        super().__init__(None, access.connection.queries, clock.now_us())
        self._access = access
        self._fence = fence
        #: Whether it is past its first write, and not at its end.
        self._holds_lock = False
        #: Held during the first write: a body may start several statements at once.
        self._beginning = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        #: Reads before the first write, to be repeated with it: name, parameters, rows.
        self._reads: list[tuple[str, dict[str, Any], list[Row]]] = []

    def holds_locks_of(self, health: Health) -> bool:
        """As in BlockTx."""
        return self._holds_lock and self._access.connection.health is health

    async def fetch_all(self, name: str, /, *, lock: Any = False, **params: object) -> list[Row]:
        """As in Tx; before the first write a read has a snapshot of its own."""
        if self.failed is not None:
            raise self.failed
        if not self._holds_lock and self._queries.by_name[name].reads and not lock:
            rows: list[Row] = await self._access.read(lambda tx: tx.fetch_all(name, **params))
            if not self._holds_lock:  # else a statement beside this one has begun
                self._reads.append((name, params, rows))
                return rows
        return await super().fetch_all(name, **params)

    async def _run(self, query: Query, params: Mapping[str, Any]) -> sqlite3.Cursor:
        async with self._beginning:
            if self.failed is None and not self._holds_lock:
                try:
                    await self._begin()
                except CordataError as error:
                    self.failed = error
            elif self.failed is None and not self._access.connection.in_transaction():
                self.failed = StoreUnavailable("the store is closed")
        return await super()._run(query, params)

    async def _write_event(self, **event: object) -> bool:
        return await Tx._write_event(self, **event)  # that of SqliteTx needs the cursor

    async def leave(self, *, commit: bool) -> None:
        """As in BlockTx."""
        failed = self.failed
        self.failed = failed or UnitMisuse("a transaction was used after its block")
        if self._holds_lock:
            self._end()
            if commit and failed is None:  # cancelling does not undo it
                await asyncio.shield(self._access.tasks.start(self._commit()))
            else:
                self._access.connection.roll_back(failed)
        if commit and failed is not None:
            raise failed

    async def _begin(self) -> None:
        """Take the lock and check what the block has seen. Raises: CordataError."""
        access = self._access
        refusal = access.connection.health.error()
        if refusal is not None:
            raise refusal
        await access.connection.begin()
        tx = access.connection.tx()
        try:
            if self.failed is not None:  # the block was left while this waited
                raise self.failed
            await self._check(tx)
        except BaseException:
            access.connection.roll_back(tx.failed)
            raise
        self._cursor, self._holds_lock = tx._cursor, True
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(access.timeout_s, self._time_out)
        holding.set(self)

    async def _check(self, tx: SqliteTx) -> None:
        """Raises: LeaseLost for a stale fence; TransactionStale when a read has changed."""
        if self._fence is not None:
            await lock_fence(tx, self._fence)
        for name, params, rows in self._reads:
            if await tx.fetch_all(name, **params) != rows:
                raise TransactionStale(f"what {name!r} returned has changed since")

    async def _commit(self) -> None:
        connection = self._access.connection
        try:
            await connection.commit()
        except CordataError as error:
            connection.roll_back(error)
            raise after_commit(error) from error.__cause__
        self._access.committed(self.topics, 1)

    def _time_out(self) -> None:
        self.failed = TransactionTimeout(
            f"the transaction held the write lock for more than {self._access.timeout_s:g} s",
            hint="await slow things before the first write, or raise transaction_timeout_s",
        )
        self._end()
        self._access.connection.roll_back()

    def _end(self) -> None:
        self._holds_lock = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
