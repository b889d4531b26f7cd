"""Hold: the write lock and the write connection on the way through one solo transaction."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable

from cordata.errors import CordataError, StoreUnavailable
from cordata.store.health import Health
from cordata.store.sqlite.connection import WriteConnection
from cordata.store.sqlite.crew import Hand, Job
from cordata.store.sqlite.fault import after_commit, is_busy
from cordata.store.sqlite.lock import Turn
from cordata.store.sqlite.tx import SqliteTx

#: As for a group commit: longer than a quick disk takes, and nobody notices.
_COMMIT_WAIT_S = 0.001


class Hold:
    """One per process; `begin` waits until the one before has ended."""

    def __init__(
        self,
        connection: WriteConnection,
        turn: Turn,
        hand: Hand,
        health: Health,
        *,
        timeout_s: float,
        committed: Callable[[set[str]], None],
    ) -> None:
        self._connection = connection
        self._turn = turn
        self._hand = hand
        self._health = health
        self.timeout_s = timeout_s
        self._committed = committed
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    async def begin(self, expired: Callable[[], None]) -> SqliteTx:
        """Take the lock and begin. `expired()` is called when it was held for too long.

        Raises: StoreUnavailable.
        """
        refusal = self._health.refusal()
        if refusal is not None:
            raise refusal
        await self._turn.acquire()
        try:
            self._connection.ready()
            try:
                self._connection.execute("BEGIN IMMEDIATE")
            except sqlite3.Error as error:
                if not is_busy(error):
                    raise
                await self._call(self._connection.begin_slowly)
        except BaseException as error:
            self._release_after(error)
            if isinstance(error, sqlite3.Error):
                raise self._connection.told(error, "BEGIN") from error
            raise

        def time_out() -> None:
            expired()
            self.abandon(None)

        self._timer = self._loop.call_later(self.timeout_s, time_out)
        return self._connection.tx()

    def abandon(self, error: CordataError | None) -> None:
        """Roll back and give the lock back; `error` is why."""
        self._stop_timer()
        self._connection.roll_back()
        if isinstance(error, StoreUnavailable):
            self._connection.discard()
            self._health.failed(error)
        self._turn.release()

    async def commit(self, topics: set[str]) -> None:
        """Commit and give the lock back. Cancelling does not undo it.

        Raises: StoreUnavailable; Unclear when it may have happened.
        """
        self._stop_timer()
        await asyncio.shield(self._commit(topics))

    def _commit(self, topics: set[str]) -> asyncio.Future[None]:
        future: asyncio.Future[None] = self._loop.create_future()

        def commit() -> None:
            self._connection.execute("COMMIT")
            self._turn.lock.release()

        def ended(job: Job[None]) -> None:
            error = job.error
            if error is None:
                self._turn.release(unlock=False)
                self._health.succeeded()
                self._committed(topics)
                if not future.done():
                    future.set_result(None)
                return
            self._release_after(error)
            if isinstance(error, sqlite3.Error):
                error = after_commit(self._connection.told(error, "COMMIT"), error)
            if not future.done():
                future.set_exception(error)

        self._hand.submit_brief(commit, ended, _COMMIT_WAIT_S)
        return future

    def _release_after(self, error: BaseException) -> None:
        self._connection.roll_back()
        if isinstance(error, sqlite3.Error):
            told = self._connection.told(error, "writing")
            if not is_busy(error):
                self._connection.discard()
                self._health.failed(told)
        elif isinstance(error, StoreUnavailable):
            self._health.failed(error)
        self._turn.release()

    async def _call(self, function: Callable[[], None]) -> None:
        """Run in the thread; being cancelled waits for its end, for the lock must be given back."""
        future: asyncio.Future[None] = self._loop.create_future()

        def ended(job: Job[None]) -> None:
            if job.error is not None:
                future.set_exception(job.error)
            else:
                future.set_result(None)

        self._hand.submit(function, ended)
        try:
            await asyncio.shield(future)
        except asyncio.CancelledError:
            await asyncio.wait([future])
            raise

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
