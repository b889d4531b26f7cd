"""Hold: the place, the connection and the time of one transaction past its first write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from cordata.errors import CordataError
from cordata.store.postgres.alone import Again, Parts, tell
from cordata.store.postgres.connection import Connection
from cordata.store.postgres.fault import Busy, cut
from cordata.store.postgres.transaction import InDoubt, Kind, Transaction, find_outcome
from cordata.store.postgres.unit import UnitTx


class Hold:
    """What a solo transaction takes with its first write and gives back at its end."""

    def __init__(
        self, parts: Parts, places: asyncio.Semaphore, *, timeout_s: float, wait_s: float
    ) -> None:
        """`places`: for so many transactions at once. `wait_s`: for a place and a connection."""
        self._parts = parts
        self._places = places
        self.timeout_s = timeout_s
        self._wait_s = wait_s
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
        """Take a place and a connection; `expired()` is called when they were held for too long.

        Raises: StoreUnavailable.
        """
        deadline = self._loop.time() + self._wait_s
        try:
            async with asyncio.timeout_at(deadline):
                await self._places.acquire()
        except TimeoutError:
            raise Busy("too many transactions are open", hint="raise [store] pool_size") from None
        self.began = True

        def time_out() -> None:
            expired()
            if self._connection is not None:
                self._connection.close()  # the server rolls back, whatever was under way

        self._timer = self._loop.call_later(self.timeout_s, time_out)

    async def begin(self, kind: Kind) -> Transaction:
        """A new transaction, on a new connection if need be; what was done so far is undone.

        Raises: StoreUnavailable.
        """
        if self._transaction is not None:
            await self._transaction.roll_back()
        if self._connection is None or self._connection.lost:
            self._return_connection()
            deadline = self._loop.time() + self._wait_s
            self._connection = await self._parts.pool.take(deadline)
        self._transaction = self._parts.begin(self._connection, kind)
        return self._transaction

    async def roll_back(self) -> None:
        """Undo everything and give all of it back. Legal when nothing was taken."""
        try:
            if self._transaction is not None:
                await self._transaction.roll_back()
        finally:
            self.end()

    async def commit(self, tx: UnitTx) -> None:
        """Commit, and know it; what was taken is still to be given back, with `end`.

        Raises: Again when nothing happened and all may be done once more; what makes it impossible.
        """
        parts, transaction = self._parts, self.transaction
        if self._timer is not None:
            self._timer.cancel()
        deadline = self._loop.time() + self._wait_s
        try:
            async with asyncio.timeout_at(deadline):
                await transaction.commit()
        except TimeoutError:
            transaction.connection.close()
            raise parts.overdue(transaction, self._wait_s) from None
        except InDoubt as doubt:
            self._return_connection()
            if not await find_outcome(doubt, parts.pool, deadline):
                raise Again(cut("the connection was lost during the commit")) from None
        except (CordataError, asyncio.CancelledError):
            raise
        except Exception as caught:  # noqa: BLE001 - of the driver: translated, and raised
            raise tell(caught, tx, parts) from None
        parts.health.succeeded()
        parts.committed(tx.topics)

    def end(self) -> None:
        """Give everything back. Twice is fine."""
        if self._timer is not None:
            self._timer.cancel()
        self._return_connection()
        if self.began:
            self.began = False
            self._places.release()

    def _return_connection(self) -> None:
        connection, self._connection = self._connection, None
        self._transaction = None
        if connection is not None:
            self._parts.pool.give_back(connection)
