"""The solo form: a transaction of its own, for code that awaits other things between statements.

    reading --first write: BEGIN, read again, compare--> writing --leave--> commit
       |                          | changed                 | too long
       leave: nothing to do       TransactionStale          rolled back, TransactionTimeout

Until its first write it holds neither a connection nor a lock: each statement sees the newest
committed state. With the first write it begins and reads again what it had read; only if all of
it is unchanged does it go on. What it changes on the grounds of what it read it reads with FOR
UPDATE, which counts as a write: rows that are only looked at may change until the commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from cordata.errors import (
    AlreadySeen,
    CordataError,
    LeaseLost,
    StoreUnavailable,
    TransactionStale,
    TransactionTimeout,
)
from cordata.store.fence import Fence
from cordata.store.postgres.alone import Parts, answer, tell_finally
from cordata.store.postgres.connection import Connection
from cordata.store.postgres.fault import lost
from cordata.store.postgres.transaction import InDoubt, Transaction, find_outcome
from cordata.store.postgres.unit import Ask, Call, UnitTx
from cordata.store.tx import Row, Tx

#: The transaction whose locks the running code holds; run() might wait for it for ever.
holding: ContextVar[SoloTx | None] = ContextVar("cordata_store_holding", default=None)

Read = Callable[[Callable[[Tx], Awaitable[Any]]], Awaitable[Any]]


class SoloTx(UnitTx):
    """The Tx of `Store.transaction()`."""

    __slots__ = (
        "_connection",
        "_fence",
        "_parts",
        "_places",
        "_read",
        "_reads",
        "_seen",
        "_taking_turns",
        "_timeout_s",
        "_timer",
        "_transaction",
        "_wait_s",
    )

    def __init__(
        self,
        parts: Parts,
        places: asyncio.Semaphore,
        read: Read,
        *,
        seen: tuple[str, str] | None,
        fence: Fence | None,
        timeout_s: float,
        wait_s: float,
    ) -> None:
        super().__init__(parts.queries, parts.time.now_us())
        self._parts = parts
        self._places = places
        self._read = read
        self._seen = seen
        self._fence = fence
        self._timeout_s = timeout_s
        self._wait_s = wait_s
        #: What was read before the first write, to be read again then.
        self._reads: list[tuple[Call, list[Row]]] = []
        self._transaction: Transaction | None = None
        self._connection: Connection | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._taking_turns = asyncio.Lock()

    @property
    def holds(self) -> bool:
        """Whether it is past its first write."""
        return self._transaction is not None

    def belongs_to(self, parts: Parts) -> bool:
        """Whether it is of that store."""
        return self._parts is parts

    async def execute(self, name: str, /, **params: object) -> int:
        """As in Tx."""
        count: int = await self._ask(Ask((self.call(name, params),), "count"))
        return count

    async def write(self, name: str, /, **params: object) -> None:
        """As in Tx; the first one is sent at once, since the locks begin with it."""
        call = self.call(name, params)
        if self._transaction is None:
            await self._ask(Ask((call,), "count"))
        else:
            self.deferred.append(call)

    async def execute_many(self, name: str, rows: Sequence[Mapping[str, object]], /) -> int:
        """As in Tx."""
        if not rows:
            return 0
        count: int = await self._ask(Ask([self.call(name, row) for row in rows], "count"))
        return count

    async def fetch_one(self, name: str, /, **params: object) -> Row | None:
        """As in Tx."""
        rows = await self.fetch_all(name, **params)
        return rows[0] if rows else None

    async def fetch_all(self, name: str, /, **params: object) -> list[Row]:
        """As in Tx."""
        call = self.call(name, params)
        if self._transaction is None and call.query.reads:
            rows: list[Row] = await self._read(lambda tx: tx.fetch_all(name, **params))
            self._reads.append((call, rows))
            return rows
        rows = await self._ask(Ask((call,), "rows"))
        return rows

    async def enter(self) -> None:
        """Before the body. Raises: AlreadySeen when its message was handled before."""
        if self._seen is not None:
            group, event_id = self._seen
            if await self._read(
                lambda tx: tx.fetch_all("seen.has", group=group, event_id=event_id)
            ):
                raise self._already_seen()

    async def leave(self, *, commit: bool) -> None:
        """After the body. Raises: what makes the commit impossible."""
        if commit and self.failed is None:
            if self._seen is not None and self._transaction is None:
                await self._begin()
            if self._transaction is not None:
                await self._parts.crew.start(self._commit())
            return
        if self._transaction is not None:
            await self._parts.crew.start(self._roll_back())
        if commit and self.failed is not None:
            raise self.failed

    async def _ask(self, ask: Ask) -> Any:
        """The answer to an Ask, in the transaction. Raises: what failed, which ends it."""
        async with self._taking_turns:
            if self.failed is not None:
                raise self.failed
            if self._transaction is None:
                await self._begin()
            assert self._transaction is not None
            reply = await answer(self._transaction, self, ask)
            if isinstance(reply, CordataError):
                told = self._overdue or tell_finally(reply, self, self._parts)
                self.failed = told if isinstance(told, CordataError) else reply
                raise self.failed
            return reply

    async def _begin(self) -> None:
        """Take a place and a connection and begin; the first statements go together."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._wait_s
        try:
            refusal = self._parts.health.refusal()
            if refusal is not None:
                raise refusal
            await self._take(deadline)
            assert self._connection is not None
            self._transaction = self._parts.begin(self._connection)
            self._timer = loop.call_later(self._timeout_s, self._time_out)
            await self._check_in()
        except CordataError as error:
            self._parts.failed(error)
            self.failed = error
            await self._parts.crew.start(self._roll_back())
            raise
        holding.set(self)

    async def _take(self, deadline: float) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                await self._places.acquire()
        except TimeoutError:
            raise StoreUnavailable(
                "too many transactions are open", hint="raise [store] pool_size"
            ) from None
        try:
            self._connection = await self._parts.pool.take(deadline)
        except BaseException:
            self._places.release()
            raise

    async def _check_in(self) -> None:
        """Fence, mark, and what was read before. Raises: what speaks against going on."""
        assert self._transaction is not None
        calls: list[Call] = []
        if self._fence is not None:
            calls.append(self.call("lease.hold", {"name": self._fence.name}))
        if self._seen is not None:
            group, event_id = self._seen
            mark = {"group": group, "event_id": event_id, "created_at": self.now_us}
            calls.append(self.call("seen.add", mark))
        calls += [call for call, _ in self._reads]
        if not calls:
            return
        results = await answer(self._transaction, self, Ask(calls, "results"))
        if isinstance(results, CordataError):
            raise self._overdue or tell_finally(results, self, self._parts)
        if self._fence is not None:
            rows = results.pop(0).rows()
            if not rows or rows[0]["term"] != self._fence.term:
                raise LeaseLost(
                    f"term {self._fence.term} of the lease {self._fence.name!r} is over"
                )
        if self._seen is not None and not results.pop(0).count:
            raise self._already_seen()
        for (call, before), result in zip(self._reads, results, strict=True):
            if result.rows() != before:
                raise TransactionStale(f"what {call.query.name!r} returned has changed since")

    def _already_seen(self) -> AlreadySeen:
        assert self._seen is not None
        group, event_id = self._seen
        return AlreadySeen(f"event {event_id} was handled by {group} before")

    @property
    def _overdue(self) -> CordataError | None:
        return self.failed if isinstance(self.failed, TransactionTimeout) else None

    def _time_out(self) -> None:
        self.failed = TransactionTimeout(
            f"the transaction held its locks for more than {self._timeout_s:g} s",
            hint="await slow things before the first write, or raise transaction_timeout_s",
        )
        if self._connection is not None:
            self._connection.close()  # the server rolls back, whatever was under way

    def _give_back(self) -> None:
        connection, self._connection = self._connection, None
        self._transaction = None
        if self._timer is not None:
            self._timer.cancel()
        if connection is not None:
            self._parts.pool.give_back(connection)
            self._places.release()

    async def _roll_back(self) -> None:
        try:
            if self._transaction is not None:
                await self._transaction.roll_back()
        finally:
            self._give_back()

    async def _commit(self) -> None:
        """Commit, and know it. Raises: what makes it impossible."""
        parts, transaction = self._parts, self._transaction
        assert transaction is not None
        deadline = asyncio.get_running_loop().time() + self._wait_s
        try:
            async with asyncio.timeout_at(deadline):
                failed = await answer(transaction, self, None) if self.deferred else None
                if failed is not None:
                    raise failed
                if self._timer is not None:
                    self._timer.cancel()
                await transaction.commit()
        except TimeoutError:
            transaction.connection.close()
            error = lost(f"no answer within {self._wait_s:g} s")
            parts.failed(error)
            raise error from None
        except InDoubt as doubt:
            self._give_back()
            if not await find_outcome(doubt, parts.pool, deadline):
                raise lost("the connection was lost during the commit") from None
        except BaseException as error:  # noqa: BLE001 - translated, and raised
            await transaction.roll_back()
            raise (self._overdue or tell_finally(error, self, parts)) from None
        finally:
            self._give_back()
        parts.health.succeeded()
        parts.committed(self.topics)
