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
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from cordata import clock
from cordata.errors import CordataError, TransactionStale, TransactionTimeout
from cordata.store.fence import Fence, check_fence
from cordata.store.health import Health
from cordata.store.queries import Queries
from cordata.store.sqlite.connection import WriteConnection
from cordata.store.sqlite.fault import after_commit
from cordata.store.sqlite.tx import SqliteTx
from cordata.store.tasks import StoreTasks
from cordata.store.tx import Row, Tx

#: The transaction whose lock the running code holds; run() would wait for it for ever.
holding: ContextVar[TransactionTx | None] = ContextVar("cordata_store_holding", default=None)


@dataclass(frozen=True, slots=True)
class Access:
    """The parts that the transactions of one store use."""

    connection: WriteConnection
    queries: Queries
    tasks: StoreTasks
    health: Health
    #: How long one may hold the lock.
    timeout_s: float
    read: Callable[[Callable[[Tx], Awaitable[Any]]], Awaitable[Any]]
    #: Called with the topics of a commit.
    committed: Callable[[set[str]], None]


class TransactionTx(Tx):
    """The Tx of `Store.transaction()`."""

    __slots__ = ("_access", "_beginning", "_fence", "_reads", "_timer", "_writing")

    def __init__(self, access: Access, fence: Fence | None) -> None:
        super().__init__(clock.now_us())
        self._access = access
        self._fence = fence
        #: The Tx that writes, from the first write to the end.
        self._writing: SqliteTx | None = None
        #: Held during the first write: a body may start several statements at once.
        self._beginning = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        #: Reads before the first write, to be repeated with it: name, parameters, rows.
        self._reads: list[tuple[str, dict[str, Any], list[Row]]] = []

    def holds_lock_of(self, connection: WriteConnection) -> bool:
        """Whether it has begun to write, in the store of this connection."""
        return self._writing is not None and self._access.connection is connection

    async def execute(self, name: str, /, **params: object) -> int:
        """As in Tx."""
        return await (await self._for_writing()).execute(name, **params)

    async def write(self, name: str, /, *, rows: Any = None, **params: object) -> None:
        """As in Tx."""
        await (await self._for_writing()).write(name, rows=rows, **params)

    async def insert(self, table: str, /, **columns: object) -> None:
        """As in Tx."""
        await (await self._for_writing()).insert(table, **columns)

    async def fetch_all(self, name: str, /, *, lock: Any = False, **params: object) -> list[Row]:
        """As in Tx."""
        if self.failed is not None:
            raise self.failed
        if self._writing is None and self._access.queries.by_name[name].reads and not lock:
            rows: list[Row] = await self._access.read(lambda tx: tx.fetch_all(name, **params))
            if self._writing is None:  # else a statement beside this one has begun
                self._reads.append((name, params, rows))
                return rows
        return await (await self._for_writing()).fetch_all(name, **params)

    async def leave(self, *, commit: bool) -> None:
        """End the transaction after its block. Raises: the error that prevents the commit."""
        writing = self._end()
        if writing is None:
            failed = self.failed
        else:
            failed = self.failed or writing.failed
            if commit and failed is None:  # cancelling does not undo it
                await asyncio.shield(self._access.tasks.start(self._commit()))
            else:
                self._access.connection.roll_back(failed)
        if commit and failed is not None:
            raise failed

    async def _for_writing(self) -> SqliteTx:
        async with self._beginning:
            if self.failed is not None:
                raise self.failed
            if self._writing is None:
                try:
                    self._writing = await self._begin()
                except CordataError as error:
                    self.failed = error
                    raise
        return self._writing

    async def _begin(self) -> SqliteTx:
        access = self._access
        refusal = access.health.error()
        if refusal is not None:
            raise refusal
        await access.connection.begin()
        writing = access.connection.tx()
        writing.now_us = self.now_us
        writing.topics = self.topics
        try:
            await self._check(writing)
        except BaseException:
            access.connection.roll_back(writing.failed)
            raise
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(access.timeout_s, self._time_out)
        holding.set(self)
        return writing

    async def _check(self, writing: SqliteTx) -> None:
        """Raises: LeaseLost for a stale fence; TransactionStale when a read has changed."""
        if self._fence is not None:
            await check_fence(writing, self._fence)
        for name, params, rows in self._reads:
            if await writing.fetch_all(name, **params) != rows:
                raise TransactionStale(f"what {name!r} returned has changed since")

    async def _commit(self) -> None:
        connection = self._access.connection
        try:
            await connection.commit()
        except CordataError as error:
            connection.roll_back(error)
            raise after_commit(error) from error.__cause__
        self._access.committed(self.topics)

    def _time_out(self) -> None:
        self.failed = TransactionTimeout(
            f"the transaction held the write lock for more than {self._access.timeout_s:g} s",
            hint="await slow things before the first write, or raise transaction_timeout_s",
        )
        self._end()
        self._access.connection.roll_back()

    def _end(self) -> SqliteTx | None:
        """Stop the timer. Returns the Tx that writes; None: nothing was written."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        writing, self._writing = self._writing, None
        return writing
