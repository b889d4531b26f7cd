"""`transaction()`: code that awaits other things between its statements, in one transaction.

    reading --first write: BEGIN, read again, compare--> writing --leave--> commit
       |                      | changed           |  ^       | too long
       |                      v               collided |     rolled back, TransactionTimeout
       leave: nothing to do   TransactionStale <-- run again, each answer compared

Until its first write it holds neither a connection nor a lock: each statement sees the newest
committed state. The first write starts a unit of work in a task of the store. It repeats these
reads, runs the statements of the block as they come, and ends when the block is left. It is run
again when any other unit would be (see `unit_runner.py`): then it repeats all statements, and each
must have the answer that the block has seen. If one differs, that is TransactionStale.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import copy_context
from typing import Any

from cordata.config.sections import StoreConfig
from cordata.errors import (
    Conflict,
    CordataError,
    TransactionStale,
    TransactionTimeout,
    TransientError,
)
from cordata.store.fence import Fence, with_fence
from cordata.store.health import Busy, Health
from cordata.store.postgres.unit import Call, Pause, Request, UnitTx
from cordata.store.postgres.unit_runner import Resources, UnitRunner
from cordata.store.runtime_store import BlockTx, holding
from cordata.store.tasks import own_error
from cordata.store.tx import Row, Tx, UnitMisuse, before_write

Read = Callable[[Callable[[Tx], Awaitable[Any]]], Awaitable[Any]]


class _Step:
    """Statements of the block that are sent together: deferred ones, then a request."""

    def __init__(self, deferred: Sequence[Call], request: Request) -> None:
        self.deferred = deferred
        self.request = request
        #: What the block has got for it.
        self.reply: Any = None
        self.answered = asyncio.get_running_loop().create_future()

    @property
    def newest(self) -> bool:
        """Whether one of its statements must see the newest state."""
        return any(call.query.newest for call in (*self.deferred, *self.request.calls))

    async def run(self, tx: UnitTx) -> Any:
        """The answer, in a unit."""
        tx.deferred = [*self.deferred]
        return await tx.ask(self.request)


class ReplayedTx(UnitTx, BlockTx):
    """The Tx of `Store.transaction()`."""

    def __init__(
        self,
        resources: Resources,
        runner: UnitRunner,
        slots: asyncio.Semaphore,
        read: Read,
        config: StoreConfig,
        *,
        fence: Fence | None,
    ) -> None:
        """`slots`: limits the transactions past their first write. `read`: as `Store.read`."""
        super().__init__(resources.queries, resources.clock.now_us())
        self._resources = resources
        self._runner = runner
        self._slots = slots
        self._read = read
        #: Limit of the wait for a slot, and of the time from BEGIN to the end of the block.
        self._wait_s = config.write_timeout_s
        self._limit_s = config.transaction_timeout_s
        self._fence = fence
        #: Reads before the first write, and what the block has got for them.
        self._reads: list[tuple[Call, list[Row]]] = []
        #: Steps with an answer, in their order; the one that waits for its answer.
        self._answered: list[_Step] = []
        self._step: _Step | None = None
        #: Set when there is a step, and when the block is left.
        self._wake = asyncio.Event()
        self._left = False
        self._one_at_a_time = asyncio.Lock()
        #: Future of the task that runs the unit; None: not started.
        self._running: asyncio.Future[None] | None = None
        self._limit: asyncio.Timeout | None = None

    def holds_locks_of(self, health: Health) -> bool:
        """As in BlockTx."""
        running = self._running is not None and not self._running.done()
        return running and self._resources.health is health

    async def defer(self, call: Call) -> None:
        """As in UnitTx; the first one is sent at once, since the locks begin with it."""
        self._check_open()
        await super().defer(call)
        if self._running is None:
            await self.ask(Request((), "count"))

    async def ask(self, request: Request) -> Any:
        """The answer to a request. Raises: the error of a statement; it ends the transaction."""
        self._check_open()
        if self._running is None and request.wants == "rows" and request.calls[0].query.reads:
            try:
                return await self._read_newest(request)
            except UnitMisuse:  # a function that writes
                pass
        async with self._one_at_a_time:
            self._check_open()  # it may have ended meanwhile
            try:
                return await self._ask(request)
            except asyncio.CancelledError:  # what it changed is not known
                self.failed = self.failed or TransientError(
                    "a statement was cancelled, which ends its transaction",
                    hint="put the timeout around the whole transaction",
                )
                raise

    async def _read_newest(self, request: Request) -> list[Row]:
        """Rows of a query before the first write."""

        async def unit(tx: Tx) -> list[Row]:
            assert isinstance(tx, UnitTx)
            rows: list[Row] = await tx.ask(request)
            return rows

        rows: list[Row] = await self._read(unit)
        if self._running is not None:  # by a statement beside this one
            rows = await self.ask(request)
        else:
            self._reads.append((request.calls[0], rows))
        return rows

    async def _ask(self, request: Request) -> Any:
        running = self._running or await self._begin()
        deferred, self.deferred = self.deferred, []
        if not deferred and not request.calls:  # sent with a statement beside this one
            return 0
        step = self._step = _Step(deferred, request)
        self._wake.set()
        await asyncio.wait((step.answered, running), return_when=asyncio.FIRST_COMPLETED)
        self._check()
        if running.done():  # the store is closed; or a bug
            await running
        return step.reply

    async def _begin(self) -> asyncio.Future[None]:
        """Take a slot and start the unit. Raises: StoreUnavailable."""
        try:
            if (refusal := self._resources.health.error()) is not None:
                raise refusal
            if (pause := before_write.get()) is not None:
                await pause()
            try:
                async with asyncio.timeout(self._wait_s):
                    await self._slots.acquire()
            except TimeoutError:
                message = "too many transactions are open"
                raise Busy(message, hint="raise [store] pool_size") from None
            try:
                self._check_open()
            except CordataError:
                self._slots.release()
                raise
        except CordataError as error:
            self.failed = error
            raise
        context = copy_context()
        context.run(before_write.set, None)  # it has paused
        self._running = self._resources.tasks.start(self._run(), context=context)
        holding.set(self)
        return self._running

    async def _run(self) -> None:
        """Run the unit, from the first write to the end of the block."""
        newest = self._step is not None and self._step.newest
        try:
            async with asyncio.timeout(None) as self._limit:  # see _unit
                unit = with_fence(self._unit, self._fence) if self._fence else self._unit
                await self._runner.run_now(unit, pauses_s=self._limit_s, newest=newest)
        except TimeoutError:
            self.failed = self.failed or TransactionTimeout(
                f"the transaction held its locks for more than {self._limit_s:g} s",
                hint="await slow things before the first write, or raise transaction_timeout_s",
            )
        except CordataError as error:
            self.failed = self.failed or error
        finally:
            self._slots.release()

    async def _unit(self, tx: Tx) -> None:
        """Repeat what the block has seen, then run its statements as they come."""
        assert isinstance(tx, UnitTx) and self._limit is not None
        self._check()
        if self._limit.when() is None and not self._left:  # the first run has a connection now
            self._limit.reschedule(asyncio.get_running_loop().time() + self._limit_s)
        await self._repeat(tx)
        while True:
            self._check()
            if (next_step := self._step) is not None:
                await self._run_step(next_step, tx)
            elif self._left:
                break
            else:
                self._wake.clear()
                await Pause(self._wake)
        tx.topics |= self.topics

    async def _repeat(self, tx: UnitTx) -> None:
        """Repeat all statements with an answer. Raises: TransactionStale when one differs."""
        # After the first write, a step that must see the newest state ends the snapshot.
        late = bool(self._answered) and self._step is not None and self._step.newest
        hint = "lock before the first write" if late else None
        if self._reads:
            again = Request([call for call, _ in self._reads], "rows of each")
            for (call, before), rows in zip(self._reads, await tx.ask(again), strict=True):
                if rows != before:
                    raise _stale(call, hint)
        for step in self._answered:
            if await step.run(tx) != step.reply:
                raise _stale((*step.request.calls, *step.deferred)[0], hint)

    async def _run_step(self, step: _Step, tx: UnitTx) -> None:
        try:
            step.reply = await step.run(tx)
        except Conflict as error:
            # The block has seen the Conflict, so a rerun is in vain. There is none, since the
            # runner takes a copy for an error of the unit's own.
            self.failed = own_error(error)
            raise self.failed from None
        self._answered.append(step)
        self._step = None
        step.answered.set_result(None)

    def _check(self) -> None:
        """Raises: what has ended the transaction."""
        if self.failed is not None:
            raise self.failed

    def _check_open(self) -> None:
        """Raises: what has ended the transaction; UnitMisuse after its block."""
        self._check()
        if self._left:
            raise UnitMisuse("a transaction was used after its block")

    async def leave(self, *, commit: bool) -> None:
        """As in BlockTx."""
        may_commit = False
        try:
            while commit and self.failed is None and self.deferred:
                await self.ask(Request((), "count"))
            may_commit = commit
        finally:
            self._left = True
            if not may_commit and self.failed is None:
                self.failed = TransientError(
                    "the block of the transaction raised an error or was cancelled"
                )
            if self._running is not None:
                if self.failed is None:  # else it is cancelled, which must not hit its ROLLBACK
                    self._wake.set()
                if self._limit is not None and not (self._running.done() or self._limit.expired()):
                    self._limit.reschedule(None if self.failed is None else 0.0)
                await asyncio.wait((self._running,))  # cancelling it does not cancel the future
        if commit:
            self._check()
            if self._running is not None:
                self._running.result()  # the store is closed; or a bug


def _stale(call: Call, hint: str | None) -> TransactionStale:
    return TransactionStale(f"what {call.query.name!r} returned has changed since", hint=hint)
