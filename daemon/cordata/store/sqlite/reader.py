"""Reads: each unit on a snapshot of its own, never waiting for a writer.

A read is first tried on the loop's thread with a budget of 3 ms: by key it is over in 20 us, a
tenth of what handing it to a thread costs. One that runs over is stopped and run again in a
reader thread, and its function goes there directly for a while.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, TypeVar

from cordata import clock
from cordata.errors import ReadTimeout, StoreUnavailable
from cordata.store.queries import Queries
from cordata.store.sqlite.connection import Database
from cordata.store.sqlite.crew import READING, Crew, Hand, Job
from cordata.store.sqlite.fault import is_busy, is_storage
from cordata.store.sqlite.tx import ReadTx, drive
from cordata.store.telling import fail
from cordata.store.tx import Unit

T = TypeVar("T")

_BUDGET_S = 0.003
#: Steps of SQLite's machine between looks at the clock: some 50 us.
_STEPS = 1000
#: So many reads of a function that ran over its budget go to a thread without a try.
_SLOW_COUNT = 100


class Snapshots:
    """One connection that reads. In one thread at a time."""

    def __init__(self, database: Database, queries: Queries, *, wait_ms: int) -> None:
        """`wait_ms`: how long it may wait while the log is recovered or the last one closes."""
        self._database = database
        self._queries = queries
        self._wait_ms = wait_ms
        self._connection: sqlite3.Connection | None = None
        self._cursor: sqlite3.Cursor | None = None
        self._deadline = 0.0
        #: The last unit was stopped at its deadline.
        self.stopped = False

    def read(self, unit: Unit[T], budget_s: float) -> T:
        """Run a unit on a snapshot. Raises: ReadTimeout when over budget; its own errors."""
        cursor = self.connect()
        tx = ReadTx(cursor, self._queries, clock.now_us())
        self._deadline = clock.monotonic() + budget_s
        self.stopped = False
        try:
            cursor.execute("BEGIN")
            try:
                return drive(unit(tx), tx)
            finally:
                self._end(cursor)
        except sqlite3.Error as error:
            if is_storage(error) or (self._connection and self._connection.in_transaction):
                self.close()
            if self.stopped:  # at its BEGIN
                raise _over(budget_s) from None
            raise self._database.told(error, "reading") from error
        except BaseException:
            if self.stopped:
                raise _over(budget_s) from None
            if isinstance(tx.failed, StoreUnavailable):
                self.close()
            raise

    def connect(self) -> sqlite3.Cursor:
        """The cursor, of a new connection if need be. Raises: StoreUnavailable."""
        if self._cursor is None:
            self._connection = self._database.open(write=False)
            self._connection.execute(f"PRAGMA busy_timeout = {self._wait_ms}")
            self._connection.set_progress_handler(self._look, _STEPS)
            self._cursor = self._connection.cursor()
        return self._cursor

    def _look(self) -> bool:
        """Called by SQLite now and then, in a ROLLBACK too; true stops the statement."""
        overdue = clock.monotonic() > self._deadline
        self.stopped = self.stopped or overdue
        return overdue

    def _end(self, cursor: sqlite3.Cursor) -> None:
        self._deadline = float("inf")
        assert self._connection is not None
        if self._connection.in_transaction:
            cursor.execute("ROLLBACK")

    def close(self) -> None:
        """Close the connection; the next read opens another."""
        connection, self._connection, self._cursor = self._connection, None, None
        if connection is not None:
            connection.close()


def _over(budget_s: float) -> ReadTimeout:
    return ReadTimeout(f"a read took longer than {budget_s:g} s")


class Reader:
    """All reads of one process. Everything here runs on the loop's thread."""

    def __init__(
        self, database: Database, queries: Queries, crew: Crew, *, threads: int, timeout_s: float
    ) -> None:
        self._inline = Snapshots(database, queries, wait_ms=0)
        self._timeout_s = timeout_s
        self._loop = crew.loop
        self._idle = [
            (
                Hand(crew, f"store-read-{number}", READING),
                Snapshots(database, queries, wait_ms=1000),
            )
            for number in range(threads)
        ]
        self._all = list(self._idle)
        self._waiting: deque[asyncio.Future[tuple[Hand, Snapshots]]] = deque()
        self._slow: dict[object, int] = {}

    def connect(self) -> None:
        """Open the first connection, so that a file of no use shows. Raises: StoreUnavailable."""
        self._inline.connect()

    async def read(self, unit: Unit[T]) -> T:
        """A unit on a snapshot. Raises: ReadTimeout, StoreUnavailable, its own errors."""
        key = getattr(unit, "__code__", None)
        slow = self._slow.get(key, 0)
        if not slow:
            try:
                return self._inline.read(unit, _BUDGET_S)
            except ReadTimeout:
                self._slow[key] = _SLOW_COUNT
            except StoreUnavailable as error:
                cause = error.__cause__
                if cause is None or not is_busy(cause):
                    raise
        elif slow == 1:
            del self._slow[key]
        else:
            self._slow[key] = slow - 1
        return await self._in_thread(unit)

    async def _in_thread(self, unit: Unit[T]) -> T:
        hand, snapshots = await self._check_out()
        future: asyncio.Future[T] = self._loop.create_future()
        run: Callable[..., Any] = copy_context().run

        def finished(job: Job[T]) -> None:
            self._check_in(hand, snapshots)
            if job.error is not None:
                fail(future, job.error)
            elif not future.done():
                future.set_result(job.result())

        hand.submit(lambda: run(snapshots.read, unit, self._timeout_s), finished)
        return await future

    async def _check_out(self) -> tuple[Hand, Snapshots]:
        if self._idle:
            return self._idle.pop()
        future: asyncio.Future[tuple[Hand, Snapshots]] = self._loop.create_future()
        self._waiting.append(future)
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self._check_in(*future.result())
            raise

    def _check_in(self, hand: Hand, snapshots: Snapshots) -> None:
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result((hand, snapshots))
                return
        self._idle.append((hand, snapshots))

    def close(self) -> None:
        """Close the connections that no thread is using; a busy one goes with its thread."""
        self._inline.close()
        for hand, snapshots in self._all:
            if hand.busy:
                hand.submit(snapshots.close, lambda job: None)
            else:
                snapshots.close()
            hand.stop()
