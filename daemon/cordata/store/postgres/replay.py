"""`transaction()`: code that awaits other things between its statements, in one transaction.

    reading --first write: BEGIN, read again, compare--> writing --leave--> commit
       |                      | changed           |  ^       | too long
       |                      v               collided |     rolled back, TransactionTimeout
       leave: nothing to do   TransactionStale <-- replayed, each answer compared

Until its first write it holds neither a connection nor a lock: each statement sees the newest
committed state. The first write begins a transaction, which repeats all reads and continues only if
their results are unchanged. From then on it sees one snapshot (READ COMMITTED from its first
locking query on, as `unit_runner.py` explains). If a row that it changes has changed since the
snapshot, the server refuses. Then, and after a deadlock or a lost connection, all statements are
replayed in a new transaction, and every answer is compared with the one that the caller has seen;
TransactionStale if one differs.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from contextvars import ContextVar
from typing import Any

from cordata.config.sections import StoreConfig
from cordata.errors import (
    CordataError,
    TransactionStale,
    TransactionTimeout,
    TransientError,
)
from cordata.store.fence import Fence, require_newest
from cordata.store.health import Busy
from cordata.store.postgres.connection import Connection
from cordata.store.postgres.fault import ConnectionLost, ServerError, connection_lost
from cordata.store.postgres.transaction import InDoubt, Kind, Transaction, find_outcome
from cordata.store.postgres.unit import Call, Request, UnitTx
from cordata.store.postgres.unit_runner import Again, Resources, answer
from cordata.store.tx import Row, Tx, UnitMisuse, before_write

#: The transaction whose locks the running code holds; run() might wait for it for ever.
holding: ContextVar[ReplayedTx | None] = ContextVar("cordata_store_holding", default=None)

Read = Callable[[Callable[[Tx], Awaitable[Any]]], Awaitable[Any]]

#: Limit of the replays, except after collisions; the pauses between them grow.
_REPLAYS = 6
_PAUSE_S = 0.01


class ReplayedTx(UnitTx):
    """The Tx of `Store.transaction()`."""

    __slots__ = (
        "_answered",
        "_fence",
        "_held",
        "_newest",
        "_one_at_a_time",
        "_read",
        "_reads",
        "_replays",
        "_resources",
    )

    def __init__(
        self,
        resources: Resources,
        slots: asyncio.Semaphore,
        read: Read,
        config: StoreConfig,
        *,
        fence: Fence | None,
    ) -> None:
        """`slots`: of transactions past their first write. `read`: as `Store.read`."""
        super().__init__(resources.queries, resources.clock.now_us())
        self._resources = resources
        self._held = _Held(resources, slots, config)
        self._read = read
        self._fence = fence
        #: Reads before the first write, to be repeated with it.
        self._reads: list[tuple[Call, list[Row]]] = []
        #: Since then: the deferred calls before each request, the request, its answer.
        self._answered: list[tuple[list[Call], Request, Any]] = []
        #: Whether a query locks, so that each statement sees the newest state.
        self._newest = False
        self._replays = 0
        self._one_at_a_time = asyncio.Lock()

    def holds_locks_of(self, resources: Resources) -> bool:
        """Whether it has begun to write, in the store with these resources."""
        over = isinstance(self.failed, TransactionTimeout)
        return self._held.began and not over and self._resources is resources

    async def leave(self, *, commit: bool) -> None:
        """End the transaction after its block. Raises: the error that prevents the commit."""
        try:
            if commit and self.failed is None and self.deferred:
                await self.ask(Request((), "count"))
        finally:
            if self._held.began:
                ending = commit and self.failed is None
                await self._resources.tasks.start(
                    self._commit() if ending else self._held.roll_back()
                )
        if commit and self.failed is not None:
            raise self.failed

    async def defer(self, call: Call) -> None:
        """As in UnitTx; the first one is sent at once, since the locks begin with it."""
        async with self._one_at_a_time:
            self.deferred.append(call)
        if not self._held.began:
            await self.ask(Request((), "count"))

    async def ask(self, request: Request) -> Any:
        """The answer to a request. Raises: the error of a statement; it ends the transaction."""
        if not self._held.began and request.wants == "rows" and request.calls[0].query.reads:
            try:
                return await self._read_before(request)
            except UnitMisuse:  # a function that writes
                pass
        async with self._one_at_a_time:
            if self.failed is not None:
                raise self.failed
            try:
                return await self._ask(request)
            except asyncio.CancelledError:
                # Its results are still to come, and what it changed is not known.
                if self.failed is None:
                    self.failed = TransientError(
                        "a statement was cancelled, which ends its transaction",
                        hint="put the timeout around the whole transaction",
                    )
                raise

    async def _ask(self, request: Request) -> Any:
        deferred, self.deferred = self.deferred, []
        await self._begin_for([*deferred, *request.calls])
        if not deferred and not request.calls:
            return 0
        reply = await self._answer(deferred, request)
        if self.failed is not None:
            reply = await self._replay_until_it_stands((deferred, request))
        self._answered.append((deferred, request, reply))
        return reply

    async def _read_before(self, request: Request) -> list[Row]:
        """Rows of a query before the first write."""
        call = request.calls[0]

        async def unit(tx: Tx) -> list[Row]:
            assert isinstance(tx, UnitTx)
            rows: list[Row] = await tx.ask(request)
            return rows

        rows: list[Row] = await self._read(unit)
        if self._held.began:  # by a statement beside this one
            rows = await self.ask(request)
        else:
            self._reads.append((call, rows))
        return rows

    async def _begin_for(self, calls: Sequence[Call]) -> None:
        """Begin or replay, if these calls need a transaction or the newest state."""
        newest = any(call.query.newest for call in calls)
        if not self._held.began:
            self._newest = newest
            await self._begin()
        elif newest and not self._newest:
            self._newest = True
            try:
                await self._replay()
                await self._replay_until_it_stands()
            except TransactionStale as error:
                self.failed = UnitMisuse(
                    f"{calls[-1].query.name!r} needs the newest state too late: {error}",
                    hint="lock before the first write, or add the line `-- newest` to that query",
                )
                raise self.failed from None

    async def _begin(self) -> None:
        """Take a slot and a connection and begin."""
        try:
            if (refusal := self._resources.health.error()) is not None:
                raise refusal
            if (pause := before_write.get()) is not None:
                await pause()
            await self._held.take(self._time_out)
            await self._begin_and_repeat_reads()
            await self._replay_until_it_stands()
        except CordataError as error:
            self._resources.health.failed(error)
            self.failed = error
            await self._resources.tasks.start(self._held.roll_back())
            raise
        holding.set(self)

    async def _begin_and_repeat_reads(self) -> None:
        """BEGIN, check the fence, repeat the reads; `failed` if the server refuses.

        Raises: LeaseLost, TransactionStale, StoreUnavailable.
        """
        transaction = await self._held.begin("newest" if self._newest else "snapshot")
        fence = [self.call(self._queries.by_name["lease.lock"], {})] if self._fence else []
        calls = [*fence, *(call for call, _ in self._reads)]
        if not calls:
            return
        self.deferred = []
        reply = await answer(transaction, self, Request((), "count"), also=calls)
        if self.failed is not None:
            return
        found = reply[1]
        if self._fence is not None:
            rows = found.pop(0)
            require_newest(self._fence, rows[0]["term"] if rows else None)
        self._compare(found)

    def _compare(self, found: Sequence[Sequence[Row]]) -> None:
        """Raises: TransactionStale when a read before the first write has another result now."""
        for (call, before), rows in zip(self._reads, found, strict=False):
            if list(rows) != before:
                raise self._stale(call)

    async def _answer(self, deferred: Sequence[Call], request: Request) -> Any:
        """Send deferred calls and a request. Returns its answer; `failed` if there is none.

        Raises: TransactionStale.
        """
        self.deferred = [*deferred]
        # While it waited for a lock, the rows that were read before may have changed.
        first = not self._answered and all(
            call.query.selects for call in (*deferred, *request.calls)
        )
        again = [call for call, _ in self._reads] if self._newest and first else []
        reply = await answer(self._held.transaction, self, request, also=again)
        if self.failed is not None:
            return None
        value, found = reply
        try:
            self._compare(found)
        except TransactionStale as error:
            self.failed = error
            raise
        return value

    async def _replay_until_it_stands(
        self, pending: tuple[Sequence[Call], Request] | None = None
    ) -> Any:
        """Replay until it succeeds. Returns the answer to the pending request.

        Transactions that collided take turns within this process, as long as there is time.
        Raises: the error, if a replay cannot help.
        """
        reply: Any = None
        while self.failed is not None:
            self._replays += 1
            collided = isinstance(self.cause, ServerError) and self.cause.fault.collided
            if not self._may_replay() or (self._replays > _REPLAYS and not collided):
                raise self._ended(self.failed)
            if not collided:
                await asyncio.sleep(random.random() * self._replays * _PAUSE_S)
            async with self._resources.turn if collided else nullcontext():
                reply = await self._replay(pending)
        return reply

    async def _replay(self, pending: tuple[Sequence[Call], Request] | None = None) -> Any:
        """Replay all in a new transaction, then send the pending request. Returns its answer.

        `failed` if it collides again. Raises: TransactionStale when an answer differs now; the
        errors of _begin_and_repeat_reads.
        """
        if isinstance(self.cause, ServerError) and self.cause.fault.stale_plan:
            self._resources.pool.replace_all()
            self._held.transaction.connection.close()
        elif self.cause is not None and (
            isinstance(self.cause, ConnectionLost) or self.cause.fault.session_ended
        ):
            self._resources.pool.close_idle()
        self.failed = self.cause = None
        try:
            await self._begin_and_repeat_reads()
            for deferred, request, before in self._answered:
                if self.failed is not None:
                    return None
                if await self._answer(deferred, request) != before and self.failed is None:
                    raise self._stale((*request.calls, *deferred)[0])
            if self.failed is None and pending is not None:
                return await self._answer(*pending)
        except CordataError as error:
            self.failed = error
            raise
        return None

    def _may_replay(self) -> bool:
        """Whether it collided with another transaction, or its connection was lost."""
        if isinstance(self.failed, TransactionTimeout):
            return False
        if isinstance(self.cause, ServerError):
            fault = self.cause.fault
            return fault.collided or fault.session_ended or fault.stale_plan
        return isinstance(self.cause, ConnectionLost)

    async def _commit(self) -> None:
        """Commit, after a replay if necessary. Raises: the error that prevents it."""
        try:
            while True:
                try:
                    await self._held.commit(self)
                    break
                except Again as again:
                    self.failed, self.cause = again.error, ConnectionLost(str(again))
                    await self._replay_until_it_stands()
        except CordataError as error:
            self._resources.health.failed(error)
            raise
        finally:
            await self._held.roll_back()

    def fail(self, error: ServerError | ConnectionLost, name: str) -> CordataError:
        """As in UnitTx; after a timeout, errors that it causes do not replace it."""
        if isinstance(self.failed, TransactionTimeout):
            return self.failed
        return super().fail(error, name)

    def _ended(self, error: CordataError) -> CordataError:
        """The error that has ended it, for the caller."""
        if not isinstance(error, TransactionTimeout):
            judged = self._resources.judge(error, self)
            judged = judged.error if isinstance(judged, Again) else judged
            self._resources.health.failed(judged)
            self.failed = judged if isinstance(judged, CordataError) else error
        assert self.failed is not None
        return self.failed

    def _stale(self, call: Call) -> TransactionStale:
        return TransactionStale(f"what {call.query.name!r} returned has changed since")

    def _time_out(self) -> None:
        self.failed = TransactionTimeout(
            f"the transaction held its locks for more than {self._held.timeout_s:g} s",
            hint="await slow things before the first write, or raise transaction_timeout_s",
        )


class _Held:
    """Slot, connection and timer of a transaction, from its first write to its end."""

    def __init__(self, resources: Resources, slots: asyncio.Semaphore, config: StoreConfig) -> None:
        self._resources = resources
        self._slots = slots
        self.timeout_s = config.transaction_timeout_s
        #: Limit of the wait for a slot and for a connection.
        self._wait_s = config.write_timeout_s
        self._loop = asyncio.get_running_loop()
        #: Whether it is past its first write.
        self.began = False
        self._connection: Connection | None = None
        self._transaction: Transaction | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def transaction(self) -> Transaction:
        """The transaction under way."""
        assert self._transaction is not None
        return self._transaction

    async def take(self, expired: Callable[[], None]) -> None:
        """Take a slot; `expired()` is called when it was held for too long.

        Raises: StoreUnavailable.
        """
        deadline = self._loop.time() + self._wait_s
        try:
            async with asyncio.timeout_at(deadline):
                await self._slots.acquire()
        except TimeoutError:
            raise Busy("too many transactions are open", hint="raise [store] pool_size") from None
        self.began = True

        def time_out() -> None:
            expired()
            if self._connection is not None:
                self._connection.close()  # the server rolls back, whatever was under way

        self._timer = self._loop.call_later(self.timeout_s, time_out)

    async def begin(self, kind: Kind) -> Transaction:
        """A new transaction, on a new connection if necessary; the old one is rolled back.

        Raises: StoreUnavailable.
        """
        if self._transaction is not None:
            await self._transaction.roll_back()
        if self._connection is None or self._connection.lost:
            self._release_connection()
            deadline = self._loop.time() + self._wait_s
            self._connection = await self._resources.pool.acquire(deadline)
        settings = self._resources.connector.settings
        self._transaction = Transaction(self._connection, settings, kind)
        return self._transaction

    async def roll_back(self) -> None:
        """Roll back, and release timer, connection and slot. Idempotent."""
        try:
            if self._transaction is not None:
                await self._transaction.roll_back()
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._release_connection()
            if self.began:
                self.began = False
                self._slots.release()

    async def commit(self, tx: UnitTx) -> None:
        """Commit, and find out whether it happened. `roll_back` is still needed to release all.

        Raises: Again when it did not happen and a replay may help; the error that prevents it.
        """
        resources, transaction = self._resources, self.transaction
        if self._timer is not None:
            self._timer.cancel()
        deadline = self._loop.time() + self._wait_s
        try:
            async with asyncio.timeout_at(deadline):
                await transaction.commit()
        except TimeoutError:
            transaction.connection.close()
            raise resources.overdue(transaction, self._wait_s) from None
        except InDoubt as doubt:
            self._release_connection()
            if not await find_outcome(doubt, resources.pool, deadline):
                raise Again(connection_lost("the connection was lost during the commit")) from None
        except (CordataError, asyncio.CancelledError):
            raise
        except Exception as caught:  # noqa: BLE001 - of the driver: translated, and raised
            raise resources.judge(caught, tx) from None
        resources.health.succeeded(transaction.commit_s)
        resources.committed(tx.topics)

    def _release_connection(self) -> None:
        connection, self._connection = self._connection, None
        self._transaction = None
        if connection is not None:
            self._resources.pool.release(connection)
