"""Reads: each unit on a snapshot of its own, never waiting for a writer.

A read is tried on the loop's thread for up to 3 ms (a read by key takes 20 us), and run again in a
reader thread if that was not enough. With threads alone, a webhook, which reads twice, costs 15 %
more processor time (four workers, Python 3.13).
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from contextvars import copy_context
from typing import TypeVar

from cordata import clock
from cordata.errors import ReadTimeout, StoreUnavailable
from cordata.store.health import Busy
from cordata.store.queries import Queries
from cordata.store.sqlite.connection import Database
from cordata.store.sqlite.fault import is_storage
from cordata.store.sqlite.thread import CallThreads
from cordata.store.sqlite.tx import ReadTx, drive
from cordata.store.tx import Unit

T = TypeVar("T")

_BUDGET_S = 0.003
#: Steps of SQLite's virtual machine between checks of the time: about 50 us.
_STEPS = 1000


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
        #: Whether the last unit was stopped at its deadline.
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
            raise self._database.unavailable(error, "reading") from error
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
        """Called by SQLite every `_STEPS`, in a ROLLBACK too; true stops the statement."""
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
    """All reads of one process."""

    def __init__(
        self,
        database: Database,
        queries: Queries,
        loop: asyncio.AbstractEventLoop,
        *,
        threads: int,
        timeout_s: float,
    ) -> None:
        self._inline = Snapshots(database, queries, wait_ms=0)
        self._timeout_s = timeout_s
        self._threads = CallThreads(loop, "store-read", threads)
        #: One for each thread; a read takes one and puts it back.
        self._idle = [Snapshots(database, queries, wait_ms=1000) for _ in range(threads)]
        self._closed = False

    def connect(self) -> None:
        """Open the first connection, to check the file. Raises: StoreUnavailable."""
        self._inline.connect()

    async def read(self, unit: Unit[T]) -> T:
        """A unit on a snapshot. Raises: ReadTimeout, StoreUnavailable, its own errors."""
        try:
            return self._inline.read(unit, _BUDGET_S)
        except (ReadTimeout, Busy):
            context = copy_context()
            return await self._threads.call(lambda: context.run(self._read_in_thread, unit))

    def _read_in_thread(self, unit: Unit[T]) -> T:
        snapshots = self._idle.pop()
        try:
            return snapshots.read(unit, self._timeout_s)
        finally:
            self._idle.append(snapshots)
            if self._closed:
                self._close_idle()

    def close(self) -> None:
        """Close the connections; a thread closes the one that it uses after its read."""
        self._closed = True
        self._inline.close()
        self._close_idle()
        self._threads.stop()

    def _close_idle(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop().close()
