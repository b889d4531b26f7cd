"""Units of work, each in a transaction of its own, as many at once as there are connections.

Each sees one snapshot (REPEATABLE READ). If a row that it changes has changed since, it runs again;
such reruns take turns. One that locks (FOR UPDATE, a function) or adds what a query finds (INSERT
... SELECT) sees the newest state with each statement (READ COMMITTED): behind a lock that it waited
for, its own or a foreign key's, a snapshot would be older than what the holder of the lock wrote.

A unit runs again after a deadlock, or when its connection was lost before its COMMIT; one whose
COMMIT was cut off runs again only once it is certain that it did not happen. One that added a key
that was there already runs again once: if another unit has just added it, it finds it then.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from cordata.errors import Conflict, CordataError, StoreUnavailable, Unclear
from cordata.store.fence import Fence
from cordata.store.health import Health
from cordata.store.postgres.clock import FleetClock
from cordata.store.postgres.connection import Connection
from cordata.store.postgres.connector import Connector
from cordata.store.postgres.crew import Crew
from cordata.store.postgres.entry import Entry
from cordata.store.postgres.fault import (
    Busy,
    ConnectionLost,
    ServerError,
    cut,
    is_storage,
    lost,
    translate,
)
from cordata.store.postgres.habit import kind_of
from cordata.store.postgres.narrow import Narrowed, Narrows
from cordata.store.postgres.pool import Pool
from cordata.store.postgres.transaction import InDoubt, Kind, Transaction, find_outcome
from cordata.store.postgres.unit import Ask, Call, Course, UnitTx, unsendable
from cordata.store.queries import Queries
from cordata.store.tx import Unit, before_write

#: A unit runs so many times at most; one that others are in the way of, as long as there is time.
_ATTEMPTS = 6
#: Of so many kinds of units it is known what they have to see.
_KINDS = 4096
#: Between them, times a random number and the attempt's: whoever met does not meet again.
_PAUSE_S = 0.01
#: The server ends a statement after `write_timeout_s`; one that does not answer then is gone.
_GRACE_S = 1.0


class OtherIsolation(Exception):
    """The unit has to see the newest state, and would see a snapshot; or the other way round."""


class Again(Exception):
    """The unit changed nothing and may be run again; `error` is for its caller if it may not."""

    def __init__(
        self,
        error: CordataError,
        *,
        collided: bool = False,
        changed: bool = False,
        lost_race: bool = False,
    ) -> None:
        super().__init__(str(error))
        self.error = error
        #: Whether another transaction was in the way.
        self.collided = collided
        #: Whether that had changed a row since the unit's snapshot.
        self.changed = changed
        #: Whether a key that it added was there already.
        self.lost_race = lost_race


class Parts:
    """What runs units needs of the store."""

    def __init__(
        self,
        *,
        pool: Pool,
        crew: Crew,
        connector: Connector,
        queries: Queries,
        time: FleetClock,
        health: Health,
        committed: Callable[[set[str]], None],
    ) -> None:
        """`committed(topics)` is called after each commit."""
        self.pool = pool
        self.crew = crew
        self.connector = connector
        self.queries = queries
        self.time = time
        self.health = health
        self.committed = committed
        self._newest: set[object] = set()

    def sees_newest(self, unit: Unit[Any]) -> bool:
        """Whether units of this kind have to see the newest state, as far as that is known."""
        return kind_of(unit) in self._newest

    def learn_newest(self, unit: Unit[Any], newest: bool) -> None:
        """Remember that of the units of this kind."""
        if len(self._newest) >= _KINDS:  # functions that are made anew, never to return
            self._newest.clear()
        (self._newest.add if newest else self._newest.discard)(kind_of(unit))

    def begin(self, connection: Connection, kind: Kind = "write") -> Transaction:
        """A transaction on a connection of the pool."""
        return Transaction(connection, self.connector.prologue, kind)

    def failed(self, error: BaseException) -> None:
        """A transaction failed with `error`; the store may be the reason."""
        if is_storage(error) and isinstance(error, StoreUnavailable):
            self.health.failed(error)

    def overdue(self, transaction: Transaction, limit_s: float) -> StoreUnavailable:
        """The error for a transaction that did not come to its end in time.

        The server ends a statement after `limit_s`: only one that did not even do that is to
        blame, and not a lock, so that others are refused as well.
        """
        told = f"no answer within {limit_s:g} s"
        if silent := transaction.connection.silent_s >= limit_s:
            self.failed(lost(told))
        if transaction.ending:
            return Unclear(f"{told} to a commit; whether it happened is not known")
        return lost(told) if silent else Busy(told)


class Alone:
    """Runs units one by one, each on a connection of its own."""

    def __init__(self, parts: Parts, *, timeout_s: float) -> None:
        self._parts = parts
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._narrows = Narrows()
        #: Units that run again because a row had changed take turns, or they would meet once more.
        self._turn = asyncio.Lock()
        self.commits = 0
        self.units = 0

    async def run_now(
        self, unit: Unit[Any], fence: Fence | None, entry: Entry | None = None
    ) -> Any:
        """Run a unit in the caller's own task; its result, after its commit.

        `entry`: whoever waits for it elsewhere. When he goes away before its COMMIT, it is undone.
        """
        deadline = self._loop.time() + self._timeout_s + _GRACE_S
        attempt = 0
        changed = False
        newest = guessed = self._parts.sees_newest(unit)
        lost_race = entry is not None and entry.lost_race
        while True:
            attempt += 1
            try:
                async with self._turn if changed else nullcontext(), self._narrows.turn(unit):
                    return await self._attempt(unit, fence, deadline, entry, newest, guessed)
            except Narrowed:
                attempt -= 1
            except OtherIsolation:
                attempt -= 1
                newest, guessed = not newest, False
                self._parts.learn_newest(unit, newest)
            except Again as again:
                enough = attempt >= _ATTEMPTS and not again.collided
                enough = enough or (lost_race and again.lost_race)
                lost_race = lost_race or again.lost_race
                if enough or self._loop.time() >= deadline:
                    self._parts.failed(again.error)
                    raise again.error from None
                changed = again.changed
                if changed:
                    continue
                if again.collided:
                    self._narrows.add(unit)
                await asyncio.sleep(random.random() * min(attempt, _ATTEMPTS) * _PAUSE_S)
            except StoreUnavailable as error:
                self._parts.failed(error)
                raise

    async def _attempt(
        self,
        unit: Unit[Any],
        fence: Fence | None,
        deadline: float,
        entry: Entry | None,
        newest: bool,
        guessed: bool,
    ) -> Any:
        parts = self._parts
        tx = UnitTx(parts.queries, parts.time.now_us())
        async with parts.pool.connection(deadline) as connection:
            self._narrows.check(unit)
            kind: Kind = "write"
            if entry is not None:
                kind = entry.bookkeeping or ("newest" if newest else "often")
            transaction = parts.begin(connection, kind)
            if entry is not None:
                entry.transaction = transaction
            limit = asyncio.timeout_at(deadline)
            try:
                async with limit:
                    course = Course(unit, tx, fence)
                    value = await run_alone(transaction, course, snapshot=kind == "often")
                    if entry is not None and entry.future.done():
                        raise Busy("nobody waits for the unit any more")
                    if (kind == "often" and tx.newest) or (
                        kind == "newest" and guessed and not tx.newest
                    ):
                        raise OtherIsolation
                    await finish(transaction, tx)
            except InDoubt as caught:
                doubt = caught
            except BaseException as error:  # noqa: BLE001 - a unit's failure is its caller's
                if limit.expired() and isinstance(error, TimeoutError):
                    connection.close()
                    raise parts.overdue(transaction, self._timeout_s) from None
                await transaction.roll_back()
                told = tell(error, tx, parts)
                if isinstance(told, Conflict) and _lost_race(error, tx):
                    told = Again(told, lost_race=True)
                raise told from None
            else:
                self._done(tx)
                return value
        if not await find_outcome(doubt, parts.pool, deadline):
            raise Again(cut("the connection was lost during a commit"))
        self._done(tx)
        return value

    def _done(self, tx: UnitTx) -> None:
        self.commits += 1
        self.units += 1
        self._parts.health.succeeded()
        self._parts.committed(tx.topics)


def _lost_race(error: BaseException, tx: UnitTx) -> bool:
    cause = tx.cause if error is tx.failed else error
    return isinstance(cause, ServerError) and cause.fault.lost_race


def tell(error: BaseException, tx: UnitTx, parts: Parts) -> BaseException:
    """What is raised for what ended a transaction; Again when it may simply be run again.

    What makes the connections of the pool useless has them made anew.
    """
    cause = tx.cause if error is tx.failed else error
    if isinstance(cause, ConnectionLost):
        parts.pool.distrust()
        return Again(cut(str(cause)))
    if not isinstance(cause, ServerError):
        return error
    told = error if isinstance(error, CordataError) else translate(cause.fault, "COMMIT")
    fault = cause.fault
    if fault.read_only or fault.stale_plan:
        parts.pool.renew()
    if fault.session_ended:
        parts.pool.distrust()
    if fault.again or fault.read_only or fault.session_ended:
        return Again(told, collided=fault.collided, changed=fault.changed)
    return told


def tell_finally(error: BaseException, tx: UnitTx, parts: Parts) -> BaseException:
    """The same where nothing is run again; the store may be the reason, and is told so."""
    told = tell(error, tx, parts)
    if isinstance(told, Again):
        told = told.error
    parts.failed(told)
    return told


async def pause_before_write(calls: Sequence[Call]) -> None:
    """Wait in a race of a test, before the first of these that writes or locks."""
    pause = before_write.get()
    if pause is not None and not all(call.query.reads for call in calls):
        await pause()


async def run_alone(transaction: Transaction, course: Course, *, snapshot: bool = False) -> Any:
    """Run a unit to its end, all but what `finish` sends; what it returned.

    Raises: what the unit raised, which is `tx.failed` with its cause when a statement failed;
    OtherIsolation when it has to see the newest state and has a `snapshot`.
    """
    tx = course.tx
    try:
        ask = course.step()
        while ask is not None:
            if snapshot and tx.newest:
                raise OtherIsolation
            await pause_before_write([*tx.deferred, *ask.calls])
            ask = course.step(await answer(transaction, tx, ask))
    except BaseException:
        course.close()
        raise
    return course.value


async def finish(transaction: Transaction, tx: UnitTx) -> None:
    """What was deferred, and COMMIT.

    Raises: InDoubt; `tx.failed` with its cause when a statement failed; ServerError,
    ConnectionLost.
    """
    calls, tx.deferred = tx.deferred, []
    await pause_before_write(calls)
    try:
        for query, args in calls:
            transaction.send(query.sql, args, writes=not query.reads)
        await transaction.commit()
    except ServerError as error:
        if 0 <= error.position < len(calls):
            raise tx.fail(error, calls[error.position].query.name) from None
        raise
    except CordataError as error:
        raise tx.fail(error, unsendable(calls)) from None


async def answer(transaction: Transaction, tx: UnitTx, ask: Ask) -> Any:
    """The answer to an Ask, with what was deferred before it; an error is returned, not raised."""
    behind = len(tx.deferred)
    calls: list[Call] = [*tx.deferred, *ask.calls]
    tx.deferred = []
    try:
        for query, args in calls:
            transaction.send(query.sql, args, writes=not query.reads)
        results = await transaction.sync()
    except ServerError as error:
        position = error.position
        return tx.fail(error, calls[position].query.name if position >= 0 else "BEGIN")
    except (ConnectionLost, CordataError) as error:
        return tx.fail(error, unsendable(calls))
    if ask.wants == "rows":
        return results[behind].rows()
    if ask.wants == "results":
        return results[behind:]
    return sum([result.count for result in results[behind:]])
