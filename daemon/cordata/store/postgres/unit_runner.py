"""Runs units of work, each in a separate transaction, on at most half of the connections at once.

    run() -> waits for a slot -> BEGIN, statements, COMMIT -> result
                                   |
                                   +-- nothing was changed, and it may run again (`Again`)

A unit sees one snapshot (REPEATABLE READ): if a row that it changes has changed since, it runs
again. A unit that locks (`lock=True`, `-- newest`) sees the newest state with each statement (READ
COMMITTED): after waiting for a lock, a snapshot would be older than the writes of the lock's last
holder, and the server fails only if these changed the locked row itself. The store reads again
after the lock what the unit has read before; if that has changed, the unit runs again.

| event | action |
|---|---|
| a row changed since the snapshot; deadlock | run again until the time is up; reruns take turns |
| a key exists already; `rows=` does not match | run again, once: it may see the other unit's row |
| connection lost before COMMIT, server restarting, stale plan | run again, `_ATTEMPTS` times |
| connection lost during COMMIT | query the outcome; if it was not committed, run again |
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any

from cordata.config.sections import StoreConfig
from cordata.errors import CordataError, StoreUnavailable, Unclear
from cordata.store.health import Busy, Health
from cordata.store.postgres.clock import FleetClock
from cordata.store.postgres.connector import Connector
from cordata.store.postgres.fault import (
    ConnectionLost,
    ServerError,
    closed_in_commit,
    connection_lost,
    server_unreachable,
    translate,
)
from cordata.store.postgres.pool import Pool
from cordata.store.postgres.transaction import InDoubt, Kind, Transaction, find_outcome
from cordata.store.postgres.unit import Call, Pause, Request, UnitCoroutine, UnitTx
from cordata.store.queries import Queries
from cordata.store.tasks import StoreTasks, fail_future
from cordata.store.tx import Row, Unit, before_write, without_published

#: Most runs of a unit; one that collides with others is run again as long as there is time.
_ATTEMPTS = 6
#: Pause between runs, times a random number and that of the attempt, to avoid another collision.
_PAUSE_S = 0.01
#: The server ends a statement after `write_timeout_s`, that of a read after `read_timeout_s`; if it
#: is silent for this much longer, it is taken for dead.
GRACE_S = 1.0


class Again(Exception):
    """The unit changed nothing and may be run again; `error` is for its caller if it may not."""

    def __init__(self, error: CordataError, *, collided: bool = False, once: bool = False) -> None:
        super().__init__(str(error))
        self.error = error
        #: Whether it collided with another transaction.
        self.collided = collided
        #: Whether it may run again only once.
        self.once = once


class _SeesSnapshot(Exception):
    """The unit must see the newest state from now on, but its transaction has a snapshot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """The shared parts of everything that runs units."""

    pool: Pool
    tasks: StoreTasks
    connector: Connector
    queries: Queries
    clock: FleetClock
    health: Health
    #: Held by a unit that runs again after a collision: such units take turns, so that they do not
    #: collide with each other again. Of 16 units that change one row, 2 to 3 times as many are
    #: committed in a second as with random pauses.
    turn: asyncio.Lock
    #: Called with the topics of a commit, and the number of units in it.
    committed: Callable[[set[str], int], None]

    def overdue(self, transaction: Transaction, limit_s: float) -> StoreUnavailable:
        """The error for a transaction that did not end in time.

        A live server ends each statement after `limit_s`, for example one that waits for a lock,
        but says so only when all that were sent together have ended. If it is silent for longer
        than they may take, the store is unhealthy; else the next connection shows it.
        """
        message = f"no answer within {limit_s:g} s"
        self.pool.close_idle()  # they may be as dead as this one
        silent = transaction.connection.silent_s >= transaction.awaited * limit_s
        if silent:
            self.health.failed(server_unreachable(message))
        if transaction.commit_sent:
            return Unclear(f"{message} to a commit; whether it happened is not known")
        return server_unreachable(message) if silent else connection_lost(message)

    def translate_error(self, error: BaseException, tx: UnitTx) -> BaseException:
        """The caller's error for one that ended a transaction; Again when the unit may run again.

        Closes the connections of the pool if the error says that they are, or may be, useless.
        """
        cause = tx.cause if error is tx.failed else error
        if isinstance(cause, ConnectionLost):
            self.pool.close_idle()
            return Again(connection_lost(str(cause)))
        if tx.miscounted and error is tx.failed and isinstance(error, CordataError):
            return Again(error, once=True)
        if not isinstance(cause, ServerError):
            return error
        fault = cause.fault
        translated = error if isinstance(error, CordataError) else translate(fault, "COMMIT")
        if fault.read_only or fault.stale_plan:
            self.pool.retire_all()
        if fault.session_ended:
            self.pool.close_idle()
        if fault.again or fault.read_only or fault.session_ended or fault.lost_race:
            return Again(translated, collided=fault.collided, once=fault.lost_race)
        return translated


class Entry:
    """A unit of work, and the result that its caller waits for."""

    __slots__ = ("context", "result", "since", "unit")

    def __init__(self, unit: Unit[Any], result: asyncio.Future[Any]) -> None:
        self.unit = unit
        self.result = result
        self.context = copy_context()
        #: Loop time of its arrival.
        self.since = result.get_loop().time()

    def fail(self, error: BaseException) -> None:
        """Give the caller an error."""
        fail_future(self.result, error)


class UnitRunner:
    """Runs units, each on a separate connection."""

    def __init__(self, resources: Resources, config: StoreConfig) -> None:
        self._resources = resources
        self._timeout_s = config.write_timeout_s
        self._loop = asyncio.get_running_loop()
        # Half of the connections: the others are for batches, reads and transactions.
        self._slots = asyncio.Semaphore(max(1, config.pool_size // 2))

    def start(self, entry: Entry) -> None:
        """Start a unit."""
        self._resources.tasks.start(self._serve(entry), context=entry.context, result=entry.result)

    async def _serve(self, entry: Entry) -> Any:
        async with self._slots:
            if entry.result.done():
                return None
            if entry.since < self._loop.time() - self._timeout_s:
                raise Busy(f"no commit within {self._timeout_s:g} s", retry_after_s=1.0)
            if (refusal := self._resources.health.error()) is not None:
                raise refusal
            return await self.run_now(entry.unit, entry)

    async def run_now(
        self,
        unit: Unit[Any],
        entry: Entry | None = None,
        *,
        pauses_s: float = 0.0,
        newest: bool = False,
    ) -> Any:
        """Run a unit in the task of the caller, in every state of the store. Returns its result.

        `entry`: of a caller in another task. If they are cancelled before the COMMIT, the unit is
        rolled back. `pauses_s`: how long the unit may pause; this does not extend the limit of a
        statement or of the COMMIT. `newest`: it will need the newest state, so it never gets a
        snapshot.
        """
        deadline = self._loop.time() + self._timeout_s + GRACE_S + pauses_s
        attempt, takes_turn, reran_once = 0, False, False
        while True:
            attempt += 1
            try:
                async with self._resources.turn if takes_turn else nullcontext():
                    return await self._attempt(unit, deadline, entry, newest=newest)
            except _SeesSnapshot:
                attempt -= 1
                newest = True
            except Again as again:
                last = again.once and reran_once
                last = last or (attempt >= _ATTEMPTS and not again.collided)
                if last or self._loop.time() >= deadline:
                    self._resources.health.failed(again.error)
                    raise again.error from None
                reran_once = reran_once or again.once
                takes_turn = again.collided and not pauses_s  # others do not wait for a pause
                if not takes_turn:
                    await asyncio.sleep(random.random() * min(attempt, _ATTEMPTS) * _PAUSE_S)
            except StoreUnavailable as error:
                self._resources.health.failed(error)
                raise

    async def _attempt(
        self, unit: Unit[Any], deadline: float, entry: Entry | None, *, newest: bool
    ) -> Any:
        resources = self._resources
        tx = UnitTx(resources.queries, resources.clock.now_us())
        wait_until = min(deadline, self._loop.time() + self._timeout_s)
        async with resources.pool.connection(wait_until) as connection:
            kind: Kind = "newest" if newest else "snapshot"
            transaction = Transaction(connection, resources.connector.settings, kind)
            limit = asyncio.timeout_at(deadline)
            try:
                async with limit:
                    run = _UnitRun(transaction, UnitCoroutine(unit, tx), limit, self._timeout_s)
                    value = await run.to_end()
                    if entry is not None and entry.result.done():
                        raise Busy("the unit's caller was cancelled")
                    await run.commit()
            except InDoubt as caught:
                doubt = caught
            except BaseException as error:  # noqa: BLE001 - a unit's failure is its caller's
                if limit.expired() and isinstance(error, TimeoutError):
                    connection.close()
                    raise resources.overdue(transaction, self._timeout_s) from None
                if isinstance(error, asyncio.CancelledError) and transaction.commit_sent:
                    connection.close()
                    raise closed_in_commit() from None
                await connection.reset()
                raise resources.translate_error(error, tx) from None
            else:
                self._committed(tx, transaction.commit_s)
                return value
        deadline = min(deadline, self._loop.time() + self._timeout_s + GRACE_S)
        if not await self._was_committed(doubt, deadline):
            raise Again(connection_lost("the connection was lost during a commit"))
        tx.made_messages = True  # perhaps: the results of its last statements are lost
        self._committed(tx, None)
        return value

    async def _was_committed(self, doubt: InDoubt, deadline: float) -> bool:
        try:
            return await find_outcome(doubt, self._resources.pool, deadline)
        except asyncio.CancelledError:
            raise closed_in_commit() from None

    def _committed(self, tx: UnitTx, commit_s: float | None) -> None:
        self._resources.health.succeeded(commit_s)
        topics = tx.topics if tx.made_messages else without_published(tx.topics)
        self._resources.committed(topics, 1)


class _UnitRun:
    """One run of a unit in a transaction."""

    def __init__(
        self,
        transaction: Transaction,
        coroutine: UnitCoroutine,
        limit: asyncio.Timeout,
        timeout_s: float,
    ) -> None:
        """`limit`: of the run, with its pauses; `timeout_s`: after which a live server ends a
        statement.
        """
        self._transaction = transaction
        self._coroutine = coroutine
        deadline = limit.when()
        assert deadline is not None
        self._limit, self._deadline, self._timeout_s = limit, deadline, timeout_s
        self._tx = coroutine.tx
        #: Reads of the newest state before the first write, to be repeated after a lock.
        self._reads: list[tuple[Call, list[Row]]] = []
        self._wrote = False

    async def to_end(self) -> Any:
        """Run the unit to its end, without its deferred writes, which `commit` sends. Returns its
        result.

        Raises: what the unit raised, which is `tx.failed` with its cause when a statement failed;
        _SeesSnapshot; Again.
        """
        return await self._coroutine.to_end(self._answer)

    async def commit(self) -> None:
        """Send the deferred writes and COMMIT.

        Raises: InDoubt; _SeesSnapshot; `tx.failed` with its cause when a statement failed;
        ServerError, ConnectionLost.
        """
        tx = self._tx
        calls, tx.deferred = tx.deferred, []
        self._choose_isolation(calls)
        await pause_before_write(calls)
        self._limit_statements(len(calls) + 1)  # and COMMIT
        try:
            for call in calls:
                self._transaction.send(call.query.sql, call.args)
            if any(call.rows is not None for call in calls):
                tx.check_counts(calls, await self._transaction.sync())
                calls = []
            tx.check_counts(calls, await self._transaction.commit())
        except ServerError as error:
            if 0 <= error.position < len(calls):
                raise tx.fail(error, calls[error.position].query.name) from None
            raise

    async def _answer(self, request: Request) -> Any:
        """The answer to a request.

        Raises: `tx.failed` when a statement failed; _SeesSnapshot; Again when something that the
        unit had read has changed.
        """
        if isinstance(request, Pause):
            self._limit.reschedule(self._deadline)
            await request.event.wait()
            return None
        calls = [*self._tx.deferred, *request.calls]
        newest = self._choose_isolation(calls)
        await pause_before_write(calls)
        self._wrote = self._wrote or not all(call.query.selects for call in calls)
        again = [call for call, _ in self._reads] if newest and not self._wrote else []
        self._limit_statements(len(calls) + len(again))
        reply, repeated = await answer(self._transaction, self._tx, request, also=again)
        for (_, before), rows in zip(self._reads, repeated, strict=False):
            if rows != before:
                raise Again(Busy("what the unit had read has changed"), collided=True)
        if (
            self._transaction.kind == "newest"
            and not newest
            and not self._wrote
            and request.wants != "count"
        ):
            replies = [reply] if request.wants == "rows" else reply
            self._reads.extend(zip(request.calls, replies, strict=True))
        return reply

    def _limit_statements(self, count: int) -> None:
        """Limit the wait for the statements that are sent next: each may take its whole time,
        within the deadline of the run.
        """
        limit_s = count * self._timeout_s + GRACE_S
        end = min(self._deadline, asyncio.get_running_loop().time() + limit_s)
        if end != self._limit.when():
            self._limit.reschedule(end)

    def _choose_isolation(self, calls: Sequence[Call]) -> bool:
        """Before BEGIN, choose the isolation of the transaction by its first calls. Returns whether
        one of these calls must see the newest state.

        Raises: _SeesSnapshot if one must, and the transaction has a snapshot already.
        """
        newest = any(call.query.newest for call in calls)
        if newest and self._transaction.kind == "snapshot":
            if self._transaction.begun:
                raise _SeesSnapshot
            self._transaction.kind = "newest"
        return newest


async def pause_before_write(calls: Sequence[Call]) -> None:
    """Wait before calls that write or lock, if a test interleaves units (`race`)."""
    pause = before_write.get()
    if pause is not None and not all(call.query.reads for call in calls):
        await pause()


async def answer(
    transaction: Transaction, tx: UnitTx, request: Request, *, also: Sequence[Call] = ()
) -> tuple[Any, Sequence[Sequence[Row]]]:
    """Send the deferred calls, those of the request, and `also`. Returns the answer to the request
    and the rows of each call in `also`.

    Raises: `tx.failed`, if one of them failed.
    """
    behind = len(tx.deferred)
    end = behind + len(request.calls)
    calls: list[Call] = [*tx.deferred, *request.calls, *also]
    tx.deferred = []
    try:
        for call in calls:
            transaction.send(call.query.sql, call.args)
        results = await transaction.sync()
        tx.check_counts(calls, results)
    except ServerError as error:
        position = error.position
        name = calls[position].query.name if position >= 0 else "BEGIN"
        raise tx.fail(error, name) from None
    except ConnectionLost as error:
        raise tx.fail(error, "") from None
    return request.answer(results[behind:end]), [result.rows() for result in results[end:]]
