"""One batch from its first statement to the answers, whatever happens on the way.

commit ................. everybody gets what his unit returned
connection lost then ... find out whether it happened: as above, or as below
statement failed ....... rolled back; whose it was runs alone, the others share another one
a mistake of ours ...... rolled back; everybody runs alone
connection lost ........ all share another one
no answer .............. everybody gets an error
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple

from cordata.errors import CordataError, PermanentError, StoreUnavailable
from cordata.log import frames, logger
from cordata.store.postgres.alone import Parts
from cordata.store.postgres.book import Book
from cordata.store.postgres.connection import Connection
from cordata.store.postgres.entry import Entry, again
from cordata.store.postgres.fault import ConnectionLost, closed_in_commit
from cordata.store.postgres.habit import Habits
from cordata.store.postgres.lockstep import Broken, Lockstep
from cordata.store.postgres.loner import Loners
from cordata.store.postgres.order import Orders
from cordata.store.postgres.shared import SharedTransaction
from cordata.store.postgres.single import Single
from cordata.store.postgres.transaction import InDoubt, Kind, find_outcome

log = logger("cordata.store")

Batch = Lockstep | Single

#: The server ends a statement after `write_timeout_s`; one that does not answer then is gone.
GRACE_S = 1.0
#: A unit shares so many transactions that die; then it runs alone.
_ATTEMPTS = 3
#: Learning the types of parameters is nothing to wait long for.
_LEARN_S = 1.0


class Doubt(NamedTuple):
    """A batch whose connection was lost during its COMMIT."""

    reason: InDoubt
    batch: Batch


class Committer:
    """Runs batches."""

    def __init__(
        self,
        parts: Parts,
        habits: Habits,
        loners: Loners,
        put_back: Callable[[Iterable[Entry]], None],
        *,
        prepared: bool,
        timeout_s: float,
    ) -> None:
        """`put_back(entries)` queues units anew; `prepared`: the server keeps statements.

        `timeout_s`: of a transaction, for what is told to the callers.
        """
        self._parts = parts
        self._habits = habits
        self._loners = loners
        self._put_back = put_back
        self._timeout_s = timeout_s
        self._book = Book(prepared=prepared)
        self._orders = Orders(self._book)
        #: Since the start.
        self.commits = 0
        #: Since the start.
        self.units = 0

    async def run(
        self, entries: list[Entry], connection: Connection, deadline: float
    ) -> Doubt | None:
        """Run a batch on a connection; what is left to find out, if anything is."""
        if self._book.curious:
            await self._learn(connection)
        snapshot = len(entries) == 1 and not self._parts.sees_newest(entries[0].unit)
        kind: Kind = "stable" if snapshot else "write"
        transaction = SharedTransaction(connection, self._parts.connector.prologue, kind)
        batch = self._batch(transaction, entries, snapshot)
        try:
            return await self._run(entries, batch, transaction, deadline)
        except BaseException as error:
            # The end of the store, or something of ours; what a unit raises is its own.
            connection.close()
            for entry in entries:
                entry.fail(_interrupted(error, committing=transaction.ending))
            if not isinstance(error, Exception):
                raise
            log.error("a batch ended with %s at %s", type(error).__name__, _where(error))
        return None

    async def _learn(self, connection: Connection) -> None:
        try:
            async with asyncio.timeout(_LEARN_S):
                await self._book.learn(connection)
        except (ConnectionLost, TimeoutError):
            connection.close()

    async def _run(
        self,
        entries: list[Entry],
        batch: Batch,
        transaction: SharedTransaction,
        deadline: float,
    ) -> Doubt | None:
        try:
            async with asyncio.timeout_at(deadline):
                batch.start(entries, self._parts.time.now_us())
                await batch.run()
                await batch.commit()
        except InDoubt as doubt:
            return Doubt(doubt, batch)
        except Broken as broken:
            await transaction.roll_back()
            self._run_again(entries, batch, broken)
        except ConnectionLost:
            self._parts.pool.distrust()
            self._run_again(entries, batch)
        except TimeoutError:
            transaction.connection.close()
            self._fail(entries, batch, self._parts.overdue(transaction, self._timeout_s))
        except Exception as error:
            if transaction.ending:
                raise
            log.error("a batch broke with %s at %s", type(error).__name__, _where(error))
            transaction.connection.close()
            self._run_again(entries, batch, Broken(entries))
        else:
            self._done(batch)
        return None

    def _batch(self, transaction: SharedTransaction, entries: list[Entry], snapshot: bool) -> Batch:
        if len(entries) == 1:
            return Single(transaction, self._parts, snapshot=snapshot)
        merge = not any(entry.attempts for entry in entries)
        return Lockstep(transaction, self._parts.queries, self._book, self._orders, merge=merge)

    async def find_out(self, doubt: Doubt, deadline: float) -> None:
        """Learn whether a batch was committed whose connection was lost meanwhile."""
        batch = doubt.batch
        try:
            if await find_outcome(doubt.reason, self._parts.pool, deadline):
                self._done(batch)
            else:
                self._run_again(batch.written, batch)
        except StoreUnavailable as error:
            self._parts.failed(error)
            self._fail(batch.written, batch, error)
        except asyncio.CancelledError:
            self._fail(batch.written, batch, closed_in_commit())
            raise

    def _done(self, batch: Batch) -> None:
        """All of a batch is on disk."""
        topics = set[str]()
        for entry in batch.written:
            topics |= entry.tx.topics
            entry.answer()
        if batch.written:
            self.commits += 1
            self._parts.health.succeeded()
        self.units += len(batch.written) + batch.answered
        self._let_go(batch)
        self._parts.committed(topics)

    def _run_again(
        self, entries: Iterable[Entry], batch: Batch, broken: Broken | None = None
    ) -> None:
        """The units of a batch that changed nothing run again, some of them alone."""
        self._let_go(batch)
        apart = {*batch.alone, *batch.later}
        if broken is not None:
            fault = broken.fault
            if fault is not None and (fault.read_only or fault.stale_plan):
                self._parts.pool.renew()
            if fault is not None and fault.session_ended:
                self._parts.pool.distrust()
            alone = [entry for entry in broken.alone if not entry.future.done()]
            # What the data refused says nothing of the next unit of that kind.
            self._leave_alone(
                alone, learn=not broken.isolation if fault is None else fault.again or fault.slow
            )
            apart |= set(alone)
        rest = [entry for entry in entries if entry not in apart and not entry.future.done()]
        for entry in rest:
            entry.attempts += 1
        self._put_back(entry for entry in rest if entry.attempts < _ATTEMPTS)
        self._leave_alone((e for e in rest if e.attempts >= _ATTEMPTS), learn=False)

    def _fail(self, entries: Iterable[Entry], batch: Batch, error: StoreUnavailable) -> None:
        """Whoever still waits for this batch gets an error."""
        self._let_go(batch)
        for entry in entries:
            if entry not in batch.alone and entry not in batch.later:
                entry.fail(again(error))

    def _let_go(self, batch: Batch) -> None:
        """Those that found no place in a batch, whatever became of it, run elsewhere."""
        self._leave_alone(batch.alone)
        self._put_back(batch.later)

    def _leave_alone(self, entries: Iterable[Entry], *, learn: bool = True) -> None:
        for entry in entries:
            if learn:
                self._habits.broke(entry.unit)
            self._loners.send(entry)


def _interrupted(error: BaseException, *, committing: bool) -> CordataError:
    """For the units of a batch that could not come to its end."""
    if committing:
        return closed_in_commit()
    if isinstance(error, asyncio.CancelledError):
        return StoreUnavailable("the store is closed")
    return PermanentError("the unit's batch was interrupted")


def _where(error: BaseException) -> str:
    return str(frames(error.__traceback__))
