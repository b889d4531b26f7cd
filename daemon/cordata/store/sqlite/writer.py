"""Group commit: the units of concurrent requests share one transaction and one sync.

    run() -> queue -> turn of the write lock -> savepoint per unit -> COMMIT -> answers

Where what runs was measured with four processes on two cores. Units run on the loop's thread: in
a thread each statement would have to win the interpreter back from a busy loop, with the lock of
the whole fleet in its hands. COMMIT runs in a thread, for which the loop waits a millisecond at
most, so a disk that stalls does not stall the loop. There is no flush timer: while one commit is
under way the next batch gathers.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable
from typing import Any

from cordata.errors import CordataError, PermanentError, StoreUnavailable
from cordata.store.fence import Fence
from cordata.store.health import Health
from cordata.store.sqlite.connection import WriteConnection
from cordata.store.sqlite.crew import Hand, Job
from cordata.store.sqlite.entry import Broken, Entry, again, probe, run_unit
from cordata.store.sqlite.fault import after_commit, is_busy
from cordata.store.sqlite.lock import LockUnusable, Turn
from cordata.store.telling import fail
from cordata.store.tx import Unit

#: The loop waits this long for a commit before it goes on with other things.
_COMMIT_WAIT_S = 0.001
#: After so many failures in a row the rest of a broken batch is not tried one by one.
_GIVE_UP_AFTER = 3


class Writer:
    """The queue of units and the batches made of it. Everything here runs on the loop's thread."""

    def __init__(
        self,
        connection: WriteConnection,
        turn: Turn,
        hand: Hand,
        health: Health,
        *,
        max_batch: int,
        max_waiting: int,
        committed: Callable[[set[str]], None],
    ) -> None:
        self._connection = connection
        self._turn = turn
        self._hand = hand
        self._health = health
        self._max_batch = max_batch
        self._max_waiting = max_waiting
        self._committed = committed
        self._loop = asyncio.get_running_loop()
        self._queue: deque[Entry] = deque()
        self._asked = False
        self._batch: list[Entry] = []
        self._topics: set[str] = set()
        #: Whether a unit of the batch did more than read; if none did, there is nothing to sync.
        self._wrote = False
        #: Storage errors in a row.
        self._failures = 0
        self._drained: asyncio.Future[None] | None = None
        self.commits = 0
        self.units = 0

    @property
    def waiting(self) -> int:
        """Units that wait for their commit."""
        return len(self._queue) + len(self._batch)

    async def run(self, unit: Unit[Any], fence: Fence | None) -> Any:
        """Run a unit in the next shared transaction; return after its commit.

        Cancelling is safe: the unit is skipped if it has not begun, and runs wholly if it has.
        """
        refusal = self._health.refusal()
        if refusal is not None:
            raise refusal
        if len(self._queue) >= self._max_waiting:
            raise StoreUnavailable(f"{len(self._queue)} units wait for a commit", retry_after_s=1)
        entry = Entry(unit, fence, self._loop.create_future())
        self._queue.append(entry)
        self._ask()
        return await entry.future

    def probe(self) -> None:
        """Queue a write that changes nothing, to learn whether the store can be written again."""
        future: asyncio.Future[Any] = self._loop.create_future()
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._queue.append(Entry(probe, None, future))
        self._ask()

    async def drain(self) -> None:
        """Wait until no unit waits any more."""
        while self.waiting:
            self._drained = self._loop.create_future()
            await self._drained

    def _ask(self) -> None:
        if self._drained is not None and not self._drained.done() and not self.waiting:
            self._drained.set_result(None)
        if not self._asked and self._queue:
            self._asked = True
            # At the end of this round of the loop, so that all its requests are in the batch.
            self._loop.call_soon(self._turn.request, self._granted, self._refused)

    def _refused(self, error: CordataError) -> None:
        """The lock could not be taken, or granting it failed inside.

        A batch that is in its COMMIT has the lock already, and is told what comes of that.
        """
        refused = list(self._queue)
        self._queue.clear()
        if not self._asked:  # granted: this batch did not get as far as its COMMIT
            refused, self._batch = [*self._batch, *refused], []
        self._asked = False
        if isinstance(error, LockUnusable):
            self._health.failed(error)
        for entry in refused:
            if not entry.future.done():
                entry.future.set_exception(again(error))
        self._ask()

    def _granted(self) -> None:
        self._asked = False
        self._batch = self._take()
        if not self._batch:
            self._turn.release()
            self._ask()
            return
        try:
            self._connection.ready()
            self._connection.execute("BEGIN IMMEDIATE")
        except StoreUnavailable as error:
            self._fail(error)
        except sqlite3.Error as error:
            if is_busy(error):
                self._hand.submit(self._connection.begin_slowly, self._begun)
            else:
                self._connection.discard()
                self._fail(self._connection.told(error, "BEGIN"))
        else:
            self._run_batch()

    def _begun(self, job: Job[None]) -> None:
        if isinstance(job.error, sqlite3.Error):
            if not is_busy(job.error):
                self._connection.discard()
            self._fail(self._connection.told(job.error, "BEGIN"), foreign=is_busy(job.error))
        else:
            job.result()
            self._run_batch()

    def _take(self) -> list[Entry]:
        """The next batch: those whose callers still wait; one alone if its transaction died."""
        taken: list[Entry] = []
        while self._queue and len(taken) < self._max_batch:
            if self._queue[0].alone and taken:
                break
            entry = self._queue.popleft()
            if entry.future.done():
                continue
            taken.append(entry)
            if entry.alone:
                break
        return taken

    def _run_batch(self) -> None:
        self._wrote = False
        try:
            if len(self._batch) == 1:
                self._run_one(self._batch[0])
            else:
                for entry in self._batch:
                    self._run_guarded(entry)
        except Broken as broken:
            self._break(broken.error)
        except sqlite3.Error as error:
            self._break(self._connection.told(error, "SAVEPOINT"))
        except BaseException:
            # Not out of a unit. Nothing of this batch happened.
            self._fail(PermanentError("the unit's batch was interrupted"), storage=False)
            raise
        else:
            if not self._wrote:
                self._connection.roll_back()
                self._turn.release()
                self._answer()
            else:
                self._hand.submit_brief(self._commit, self._ended, _COMMIT_WAIT_S)

    def _run_guarded(self, entry: Entry) -> None:
        """Run a unit between savepoints (6 us), so that its failure is its own."""
        self._connection.execute("SAVEPOINT unit")
        self._run_one(entry)
        if entry.error is not None:
            if not self._connection.in_transaction():
                raise Broken(PermanentError("the transaction was ended by a unit"))
            self._connection.execute("ROLLBACK TO unit")
        self._connection.execute("RELEASE unit")

    def _run_one(self, entry: Entry) -> None:
        """Run a unit; its result or its error is kept. Raises: Broken."""
        tx = self._connection.tx()
        entry.error = None
        try:
            entry.value = entry.context.run(run_unit, entry, tx)
        except BaseException as error:  # a unit's failure is its caller's
            if isinstance(tx.failed, StoreUnavailable):
                raise Broken(tx.failed) from error
            entry.error = error
        else:
            self._wrote = self._wrote or tx.wrote
            self._topics |= tx.topics

    def _commit(self) -> None:
        """In the thread: nobody is answered before this returned."""
        self._connection.execute("COMMIT")
        self._turn.lock.release()

    def _ended(self, job: Job[None]) -> None:
        if isinstance(job.error, sqlite3.Error):
            error = self._connection.told(job.error, "COMMIT")
            self._connection.roll_back()
            self._connection.discard()
            self._break(error, cause=job.error)
            return
        job.result()
        self.commits += 1
        self._failures = 0
        self._health.succeeded()
        self._turn.release(unlock=False)
        self._answer()

    def _answer(self) -> None:
        batch, self._batch = self._batch, []
        topics, self._topics = self._topics, set()
        self.units += len(batch)
        for entry in batch:
            if entry.error is not None:
                fail(entry.future, entry.error)
            elif not entry.future.done():
                entry.future.set_result(entry.value)
        self._committed(topics)
        self._ask()

    def _break(self, error: CordataError, *, cause: sqlite3.Error | None = None) -> None:
        """The shared transaction died: its units are run again one by one.

        `cause`: of a COMMIT that failed.
        """
        if len(self._batch) == 1 or self._failures >= _GIVE_UP_AFTER:
            self._fail(error, cause=cause)
            return
        self._connection.roll_back()
        self._topics.clear()
        for entry in reversed(self._batch):
            entry.alone = True
            self._queue.appendleft(entry)
        self._batch = []
        self._turn.release()
        self._ask()

    def _fail(
        self,
        error: CordataError,
        *,
        storage: bool = True,
        foreign: bool = False,
        cause: sqlite3.Error | None = None,
    ) -> None:
        """Give the whole batch an error; what waits behind it too, once trying is pointless."""
        self._connection.roll_back()
        self._topics.clear()
        batch, self._batch = self._batch, []
        told = error
        if cause is not None and isinstance(error, StoreUnavailable):
            told = after_commit(error, cause)
        errors = [(entry, told) for entry in batch]
        if isinstance(error, StoreUnavailable) and storage and not foreign:
            self._failures += 1
            self._health.failed(error)
            # The file may have been opened for reading only: after a chown a new one can write.
            self._connection.discard()
            if self._failures >= _GIVE_UP_AFTER:
                errors += [(entry, error) for entry in self._queue]
                self._queue.clear()
        for entry, its_error in errors:
            if not entry.future.done():
                entry.future.set_exception(again(its_error))
        self._turn.release()
        self._ask()
