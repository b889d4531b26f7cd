"""The solo form: a transaction of its own, for code that awaits other things between statements.

    reading --first write: BEGIN, read again, compare--> writing --leave--> commit
       |                      | changed           |  ^       | too long
       |                      v                deadlock or   rolled back, TransactionTimeout
       leave: nothing to do   TransactionStale <-- a row changed: all of it once more, compared

Until its first write it holds neither a connection nor a lock: each statement sees the newest
committed state. With the first write it begins and reads again what it had read; only if all of
it is unchanged does it go on. A transaction that decides on what it had read is "stable": if a row
that it is going to change has changed meanwhile, the server refuses. Then, and after a deadlock,
everything is done once more in a new transaction and every answer compared with the one that the
caller has seen; only one that differs is TransactionStale. What it reads after its first write,
in order to change it, it reads with FOR UPDATE.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from cordata.errors import (
    AlreadySeen,
    CordataError,
    LeaseLost,
    TransactionStale,
    TransactionTimeout,
)
from cordata.store.fence import Fence
from cordata.store.postgres.alone import Again, Parts, answer, tell_finally
from cordata.store.postgres.fault import ConnectionLost, ServerError
from cordata.store.postgres.hold import Hold
from cordata.store.postgres.unit import Ask, Call, UnitTx
from cordata.store.tx import Row, Tx, before_write

#: The transaction whose locks the running code holds; run() might wait for it for ever.
holding: ContextVar[SoloTx | None] = ContextVar("cordata_store_holding", default=None)

Read = Callable[[Callable[[Tx], Awaitable[Any]]], Awaitable[Any]]

#: So often is everything done once more, with pauses that grow.
_REPLAYS = 6
_PAUSE_S = 0.01


class SoloTx(UnitTx):
    """The Tx of `Store.transaction()`."""

    __slots__ = (
        "_asked",
        "_fence",
        "_hold",
        "_parts",
        "_read",
        "_reads",
        "_redone",
        "_seen",
        "_taking_turns",
    )

    def __init__(
        self,
        parts: Parts,
        hold: Hold,
        read: Read,
        *,
        seen: tuple[str, str] | None,
        fence: Fence | None,
    ) -> None:
        super().__init__(parts.queries, parts.time.now_us())
        self._parts = parts
        self._hold = hold
        self._read = read
        self._seen = seen
        self._fence = fence
        #: What was read before the first write, to be read again then.
        self._reads: list[tuple[Call, list[Row]]] = []
        #: What was asked since, with what was deferred before it, and the answer.
        self._asked: list[tuple[list[Call], Ask, Any]] = []
        self._redone = 0
        self._taking_turns = asyncio.Lock()

    def holds_locks_of(self, parts: Parts) -> bool:
        """Whether it is past its first write, in that store."""
        over = isinstance(self.failed, TransactionTimeout)
        return self._hold.began and not over and self._parts is parts

    async def execute(self, name: str, /, **params: object) -> int:
        """As in Tx."""
        count: int = await self.ask(Ask((self.call(name, params),), "count"))
        return count

    async def write(self, name: str, /, *, rows: Any = None, **params: object) -> None:
        """As in Tx; the first one is sent at once, since the locks begin with it."""
        if rows is None:
            await self._write(self.call(name, params))
        else:
            self.expect(name, await self.execute(name, **params), rows)

    async def insert(self, table: str, /, **columns: object) -> None:
        """As in Tx."""
        await self._write(self.insertion(table, columns))

    async def _write(self, call: Call) -> None:
        if not self._hold.began:
            await self.ask(Ask((call,), "count"))
        else:
            self.deferred.append(call)

    async def execute_many(self, name: str, rows: Sequence[Mapping[str, object]], /) -> int:
        """As in Tx."""
        if not rows:
            return 0
        count: int = await self.ask(Ask([self.call(name, row) for row in rows], "count"))
        return count

    async def fetch_one(self, name: str, /, *, lock: Any = False, **params: object) -> Row | None:
        """As in Tx."""
        rows = await self.fetch_all(name, lock=lock, **params)
        return rows[0] if rows else None

    async def fetch_all(self, name: str, /, *, lock: Any = False, **params: object) -> list[Row]:
        """As in Tx."""
        call = self.call(name, params, lock=lock)
        if not self._hold.began and call.query.reads:
            rows: list[Row] = await self._read(lambda tx: tx.fetch_all(name, **params))
            self._reads.append((call, rows))
            return rows
        rows = await self.ask(Ask((call,), "rows"))
        return rows

    def fail(self, error: ServerError | ConnectionLost | CordataError, name: str) -> CordataError:
        """As in UnitTx; what breaks since the time is over is no news."""
        if isinstance(self.failed, TransactionTimeout):
            return self.failed
        return super().fail(error, name)

    async def enter(self) -> None:
        """Before the body. Raises: AlreadySeen when its message was handled before."""
        if self._seen is not None:
            mark = dict(zip(("group", "event_id"), self._seen, strict=True))
            if await self._read(lambda tx: tx.fetch_all("seen.has", **mark)):
                raise self._already_seen()

    async def leave(self, *, commit: bool) -> None:
        """After the body. Raises: what makes the commit impossible."""
        try:
            unsaid = self.deferred or (self._seen is not None and not self._hold.began)
            if commit and self.failed is None and unsaid:
                await self.ask(Ask((), "count"))
        finally:
            if self._hold.began:
                ending = commit and self.failed is None
                await self._parts.crew.start(self._commit() if ending else self._hold.roll_back())
        if commit and self.failed is not None:
            raise self.failed

    async def _commit(self) -> None:
        """Commit, if need be after having done everything once more. Raises: what failed."""
        try:
            while True:
                try:
                    await self._hold.commit(self)
                    break
                except Again as again:
                    self.failed, self.cause = again.error, ConnectionLost(str(again))
                    await self._redo()
        except CordataError as error:
            self._parts.failed(error)
            raise
        finally:
            await self._hold.roll_back()

    async def ask(self, ask: Ask) -> Any:
        """The answer to an Ask, in the transaction. Raises: what failed, which ends it."""
        async with self._taking_turns:
            if self.failed is not None:
                raise self.failed
            if not self._hold.began:
                await self._begin()
            deferred = self.deferred
            if not deferred and not ask.calls:
                return 0
            while True:
                self.deferred = list(deferred)
                reply = await answer(self._hold.transaction, self, ask)
                if self.failed is None:
                    self._asked.append((deferred, ask, reply))
                    return reply
                await self._redo()

    async def _begin(self) -> None:
        """Take a place and a connection and begin."""
        try:
            refusal = self._parts.health.refusal()
            if refusal is not None:
                raise refusal
            if (pause := before_write.get()) is not None:
                await pause()
            await self._hold.take(self._time_out)
            await self._check_in()
            await self._redo()
        except CordataError as error:
            self._parts.failed(error)
            self.failed = error
            await self._parts.crew.start(self._hold.roll_back())
            raise
        holding.set(self)

    async def _check_in(self) -> None:
        """BEGIN, the fence, the mark, and what was read before; `failed` if the server refuses.

        Raises: what speaks against going on.
        """
        transaction = await self._hold.begin("stable" if self._reads else "write")
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
        self.deferred = []
        results = await answer(transaction, self, Ask(calls, "results"))
        if self.failed is not None:
            return
        if self._fence is not None:
            rows = results.pop(0).rows()
            if not rows or rows[0]["term"] != self._fence.term:
                raise LeaseLost(f"term {self._fence.term} of {self._fence.name!r} is over")
        if self._seen is not None and not results.pop(0).count:
            raise self._already_seen()
        for (call, before), result in zip(self._reads, results, strict=True):
            if result.rows() != before:
                raise self._stale(call)

    async def _redo(self) -> None:
        """Everything once more, until it stands. Raises: what failed, if that makes no sense."""
        while self.failed is not None:
            self._redone += 1
            if self._redone > _REPLAYS or not self._collided():
                raise self._ended(self.failed)
            await asyncio.sleep(random.random() * self._redone * _PAUSE_S)
            await self._replay()

    async def _replay(self) -> None:
        """Everything once more in a new transaction; `failed` if it collides again.

        Raises: TransactionStale when an answer is another one now; what _check_in raises.
        """
        if isinstance(self.cause, ServerError) and self.cause.fault.stale_plan:
            self._parts.pool.renew()
            self._hold.transaction.connection.close()
        elif not isinstance(self.cause, ServerError) or self.cause.fault.session_ended:
            self._parts.pool.distrust()
        self.failed = self.cause = None
        try:
            await self._check_in()
            for deferred, ask, before in self._asked:
                if self.failed is not None:
                    return
                self.deferred = list(deferred)
                if (
                    await answer(self._hold.transaction, self, ask) != before
                    and self.failed is None
                ):
                    raise self._stale(ask.calls[0])
        except CordataError as error:
            self.failed = error
            raise

    def _collided(self) -> bool:
        """Whether it may be done once more: it was in the way of another, or its wire was cut."""
        if self.failed is None or isinstance(self.failed, TransactionTimeout):
            return False
        if isinstance(self.cause, ServerError):
            fault = self.cause.fault
            return fault.collided or fault.session_ended or fault.stale_plan
        return isinstance(self.cause, ConnectionLost)

    def _ended(self, error: CordataError | None) -> CordataError:
        """The error that has ended it, for the caller."""
        if not isinstance(self.failed, TransactionTimeout):
            if isinstance(self.cause, ServerError) and self.cause.fault.collided:
                self.failed = TransactionStale("others changed the same rows, again and again")
            else:
                assert error is not None
                told = tell_finally(error, self, self._parts)
                if isinstance(told, CordataError):
                    self.failed = told
        assert self.failed is not None
        return self.failed

    def _already_seen(self) -> AlreadySeen:
        group, event_id = self._seen or ("", "")
        return AlreadySeen(f"event {event_id} was handled by {group} before")

    def _stale(self, call: Call) -> TransactionStale:
        return TransactionStale(f"what {call.query.name!r} returned has changed since")

    def _time_out(self) -> None:
        self.failed = TransactionTimeout(
            f"the transaction held its locks for more than {self._hold.timeout_s:g} s",
            hint="await slow things before the first write, or raise transaction_timeout_s",
        )
