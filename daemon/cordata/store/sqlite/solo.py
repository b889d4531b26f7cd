"""The solo form: a transaction of its own, for code that awaits other things between statements.

    reading --first write: turn, read again, compare--> writing --leave--> commit
       |                          | changed                 | too long
       leave: nothing to do       TransactionStale          rolled back, TransactionTimeout

Until its first write it holds nothing, neither lock nor snapshot: each statement sees the newest
committed state. With the first write it takes the lock and reads again what it had read; only if
all of it is unchanged does it go on. So whatever it decided on is true at the moment it commits,
and a handler that waits a minute for another service keeps no log from starting over.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from cordata import clock
from cordata.errors import (
    AlreadySeen,
    CordataError,
    TransactionStale,
    TransactionTimeout,
)
from cordata.store.fence import Fence, check_fence
from cordata.store.queries import Queries
from cordata.store.sqlite.hold import Hold
from cordata.store.sqlite.tx import SqliteTx
from cordata.store.tx import Row, Tx

#: The transaction whose lock the running code holds; run() would wait for it for ever.
holding: ContextVar[SoloTx | None] = ContextVar("cordata_store_holding", default=None)

Read = Callable[[Callable[[Tx], Awaitable[Any]]], Awaitable[Any]]


class SoloTx(SqliteTx):
    """The Tx of `Store.transaction()`."""

    __slots__ = (
        "_fence",
        "_hold",
        "_names",
        "_read",
        "_reads",
        "_seen",
        "_writing",
    )

    def __init__(
        self,
        hold: Hold,
        queries: Queries,
        read: Read,
        seen: tuple[str, str] | None,
        fence: Fence | None,
    ) -> None:
        self._names = queries.by_name
        self.topics = set()
        self.failed = None
        self.wrote = False
        self.now_us = clock.now_us()
        self._hold = hold
        self._read = read
        self._seen = seen
        self._fence = fence
        self._writing: SqliteTx | None = None
        #: What was read before the first write, to be read again then.
        self._reads: list[tuple[str, dict[str, Any], list[Row]]] = []

    def holds_lock_of(self, hold: Hold) -> bool:
        """Whether it is past its first write, in that store."""
        return self._writing is not None and self._hold is hold

    async def execute(self, name: str, /, **params: object) -> int:
        """As in Tx."""
        return await (await self._for_writing()).execute(name, **params)

    async def write(self, name: str, /, *, rows: Any = None, **params: object) -> None:
        """As in Tx."""
        await (await self._for_writing()).write(name, rows=rows, **params)

    async def insert(self, table: str, /, **columns: object) -> None:
        """As in Tx."""
        await (await self._for_writing()).insert(table, **columns)

    async def execute_many(self, name: str, rows: Sequence[Mapping[str, object]], /) -> int:
        """As in Tx."""
        return await (await self._for_writing()).execute_many(name, rows)

    async def fetch_one(self, name: str, /, *, lock: Any = False, **params: object) -> Row | None:
        """As in Tx."""
        rows = await self.fetch_all(name, lock=lock, **params)
        return rows[0] if rows else None

    async def fetch_all(self, name: str, /, *, lock: Any = False, **params: object) -> list[Row]:
        """As in Tx."""
        if self.failed is not None:
            raise self.failed
        if self._writing is None and self._names[name].reads and not lock:
            rows: list[Row] = await self._read(lambda tx: tx.fetch_all(name, **params))
            self._reads.append((name, params, rows))
            return rows
        return await (await self._for_writing()).fetch_all(name, **params)

    async def enter(self) -> None:
        """Before the body. Raises: AlreadySeen when its message was handled before."""
        if self._seen is not None:
            group, event_id = self._seen
            if await self.fetch_all("seen.has", group=group, event_id=event_id):
                raise AlreadySeen(f"event {event_id} was handled by {group} before")

    async def leave(self, *, commit: bool) -> None:
        """After the body. Raises: what makes the commit impossible."""
        if self.failed is not None:
            self.abandon()
            if commit:
                raise self.failed
        elif not commit:
            self.abandon()
        else:
            if self._seen is not None:
                await self._for_writing()
            if self._writing is not None:
                await self._commit()

    async def _for_writing(self) -> SqliteTx:
        if self.failed is not None:
            raise self.failed
        if self._writing is None:
            try:
                await self._begin()
            except CordataError as error:
                self.failed = error
                raise
        assert self._writing is not None
        return self._writing

    async def _begin(self) -> None:
        self._writing = await self._hold.begin(self._time_out)
        try:
            self._writing.now_us = self.now_us
            self._writing.topics = self.topics
            if self._fence is not None:
                await check_fence(self._writing, self._fence)
            if self._seen is not None:
                group, event_id = self._seen
                now_us = self.now_us
                if not await self._writing.execute(
                    "seen.add", group=group, event_id=event_id, created_at=now_us
                ):
                    raise AlreadySeen(f"event {event_id} was handled by {group} before")
            for name, params, rows in self._reads:
                if name != "seen.has" and await self._writing.fetch_all(name, **params) != rows:
                    raise TransactionStale(f"what {name!r} returned has changed since")
            holding.set(self)
        except BaseException:
            self.abandon()
            raise

    def _time_out(self) -> None:
        limit_s = self._hold.timeout_s
        self.failed = TransactionTimeout(
            f"the transaction held the write lock for more than {limit_s:g} s",
            hint="await slow things before the first write, or raise transaction_timeout_s",
        )
        self._writing = None

    def abandon(self) -> None:
        """Roll back if it is past its first write."""
        if self._writing is not None:
            error, self._writing = self._writing.failed, None
            self._hold.abandon(error)

    async def _commit(self) -> None:
        writing, self._writing = self._writing, None
        assert writing is not None
        if writing.failed is not None:
            self._hold.abandon(writing.failed)
            raise writing.failed
        await self._hold.commit(self.topics)
