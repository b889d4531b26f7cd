"""Group commit: the units of concurrent requests share one transaction and one sync.

    run() -> queue -> write lock -> unit after unit -> COMMIT -> each caller has its result
                         ^                 |
                         +--savepoint each-+ a unit failed that had written: once more, from BEGIN

Units run on the loop's thread: in another thread each statement would wait for the interpreter lock
of a busy loop while it holds the lock of all processes. There is no flush timer: the next batch
gathers while one commit is under way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import Context, copy_context
from typing import Any

from cordata.errors import CordataError, PermanentError, StoreUnavailable
from cordata.store.health import Busy
from cordata.store.sqlite.connection import WriteConnection
from cordata.store.sqlite.fault import after_commit
from cordata.store.sqlite.tx import SqliteTx, drive
from cordata.store.tasks import StoreTasks, fail_future, own_error
from cordata.store.tx import MAX_BATCH, Tx, Unit

#: After this many storage errors in a row the waiting units are refused, not tried one by one.
_GIVE_UP_AFTER = 3


class Entry:
    """One unit that waits for its commit."""

    __slots__ = ("alone", "context", "error", "future", "unit", "value")

    def __init__(self, unit: Unit[Any], future: asyncio.Future[Any]) -> None:
        self.unit = unit
        self.future = future
        self.context: Context = copy_context()
        #: Whether it must run in a transaction of its own, because its shared one failed.
        self.alone = False
        self.value: Any = None
        self.error: BaseException | None = None


class Writer:
    """The queue of units and the batches made of it."""

    def __init__(
        self,
        connection: WriteConnection,
        tasks: StoreTasks,
        *,
        committed: Callable[[set[str], int], None],
    ) -> None:
        """`committed` is called after a batch: with its topics, and how many units it wrote."""
        self._connection = connection
        self._tasks = tasks
        self._committed = committed
        self._loop = asyncio.get_running_loop()
        self._queue: deque[Entry] = deque()
        #: Topics to notify after the commit of the batch.
        self._topics: set[str] = set()
        #: Whether a task waits for the write lock, to run the units in the queue.
        self._asked = False
        #: Storage errors in a row.
        self._failures = 0

    def start(self, unit: Unit[Any], result: asyncio.Future[Any]) -> None:
        """Run a unit in the next shared transaction; its result comes after the commit.

        If the result was cancelled, a unit that has not begun is skipped.
        """
        self._queue.append(Entry(unit, result))
        self._ask()

    def probe(self) -> asyncio.Future[Any]:
        """Queue a write that changes nothing, to learn whether the store can be written again."""
        result: asyncio.Future[Any] = self._loop.create_future()
        self.start(_probe, result)
        return result

    def _ask(self) -> None:
        """Start the task of the next batch; it runs after the loop's tasks that are ready now."""
        if self._queue and not self._asked:
            self._asked = True
            self._tasks.start(self._write())

    async def _write(self) -> None:
        try:
            await self._connection.begin()
        except BaseException as error:
            self._refuse(self._queue, error)
            self._queue.clear()
            if not isinstance(error, CordataError):
                raise
            return
        finally:
            self._asked = False
        batch = self._take()
        committing = False
        try:
            if self._run_units(batch):
                committing = True
                await self._connection.commit()
                self._failures = 0
            else:
                self._connection.roll_back()
        except CordataError as error:
            self._failed(batch, error, committing=committing)
        except BaseException as error:
            self._connection.roll_back()
            self._refuse(batch, error)
            raise
        else:
            self._answer(batch, committed=committing)
        finally:
            self._ask()

    def _take(self) -> list[Entry]:
        """The next batch: those whose callers still wait; one alone if its transaction failed."""
        taken: list[Entry] = []
        while self._queue and len(taken) < MAX_BATCH:
            if self._queue[0].alone and taken:
                break
            entry = self._queue.popleft()
            if entry.future.done():
                continue
            taken.append(entry)
            if entry.alone:
                break
        return taken

    def _run_units(self, batch: list[Entry]) -> bool:
        """Run each unit; whether one of them wrote. Raises: CordataError: the batch failed.

        Most batches need no savepoints, which cost each unit two statements and a copy of every
        page that it changes. When a unit fails that has written, all of them run once more.
        """
        wrote = self._try_units(batch, savepoints=False)
        if wrote is None:
            self._connection.execute("ROLLBACK")
            self._connection.execute("BEGIN IMMEDIATE")
            wrote = self._try_units(batch, savepoints=True)
        return bool(wrote)

    def _try_units(self, batch: list[Entry], *, savepoints: bool) -> bool | None:
        """Run each unit. None: what one that failed has written cannot be undone by itself."""
        self._topics = set()
        wrote = False
        for entry in batch:
            if savepoints:
                self._connection.execute("SAVEPOINT unit")
            tx = self._connection.tx()
            self._run_unit(entry, tx)
            if not self._connection.in_transaction():
                raise PermanentError("the transaction was ended by a unit")
            if entry.error is None:
                self._topics |= tx.topics
                wrote = wrote or tx.wrote
            elif savepoints:
                self._connection.execute("ROLLBACK TO unit")
            elif tx.wrote:
                if len(batch) == 1:
                    return False
                return None
            if savepoints:
                self._connection.execute("RELEASE unit")
        return wrote

    def _run_unit(self, entry: Entry, tx: SqliteTx) -> None:
        """Keep a unit's result or error. Raises: StoreUnavailable."""
        entry.error = None
        try:
            entry.value = entry.context.run(lambda: drive(entry.unit(tx), tx))
        except BaseException as error:  # noqa: BLE001 - the failure of a unit is its caller's
            if isinstance(tx.failed, StoreUnavailable):
                raise tx.failed from tx.failed.__cause__
            entry.error = error

    def _answer(self, batch: list[Entry], *, committed: bool) -> None:
        for entry in batch:
            if entry.error is not None:
                fail_future(entry.future, entry.error)
            elif not entry.future.done():
                entry.future.set_result(entry.value)
        stored = sum(entry.error is None for entry in batch)
        self._committed(self._topics, stored if committed else 0)

    def _failed(self, batch: list[Entry], error: CordataError, *, committing: bool) -> None:
        """After a failed shared transaction: run its units again one by one, or refuse them.

        A COMMIT that failed may be in the log all the same. Then nothing runs again: a unit that
        could not begin would be told that nothing was written.
        """
        reported = after_commit(error) if committing else error
        if len(batch) > 1 and reported is error and self._failures < _GIVE_UP_AFTER:
            self._connection.roll_back()
            for entry in reversed(batch):
                entry.alone = True
                self._queue.appendleft(entry)
            return
        self._connection.roll_back(error)
        self._refuse(batch, reported)
        if isinstance(error, StoreUnavailable) and not isinstance(error, Busy):
            self._failures += 1
            if self._failures >= _GIVE_UP_AFTER:
                self._refuse(self._queue, error)
                self._queue.clear()

    def _refuse(self, entries: Iterable[Entry], error: BaseException) -> None:
        if not isinstance(error, CordataError):  # a bug, or the end of the loop
            error = StoreUnavailable("the store had an internal error; see the log")
        for entry in entries:
            if not entry.future.done():
                entry.future.set_exception(own_error(error))


async def _probe(tx: Tx) -> int:
    """A unit that changes nothing and is written like any other."""
    return await tx.execute("store.probe")
