"""Hold: the place, the connection and the time of one transaction past its first write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from cordata.store.postgres.alone import Parts, tell_finally
from cordata.store.postgres.connection import Connection
from cordata.store.postgres.fault import Busy, lost
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
        self._connection: Connection | None = None
        self._transaction: Transaction | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def began(self) -> bool:
        """Whether it is past its first write."""
        return self._connection is not None

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
        try:
            self._connection = await self._parts.pool.take(deadline)
        except BaseException:
            self._places.release()
            raise

        def time_out() -> None:
            expired()
            if self._connection is not None:
                self._connection.close()  # the server rolls back, whatever was under way

        self._timer = self._loop.call_later(self.timeout_s, time_out)

    def begin(self, kind: Kind) -> Transaction:
        """A transaction on the connection."""
        assert self._connection is not None
        self._transaction = self._parts.begin(self._connection, kind)
        return self._transaction

    async def roll_back(self) -> None:
        """Undo everything and give all of it back. Legal when nothing was taken."""
        try:
            if self._transaction is not None:
                await self._transaction.roll_back()
        finally:
            self._give_back()

    async def commit(self, tx: UnitTx) -> None:
        """Commit, and know it; then give all of it back. Raises: what makes it impossible."""
        parts, transaction = self._parts, self.transaction
        if self._timer is not None:
            self._timer.cancel()
        deadline = self._loop.time() + self._wait_s
        try:
            async with asyncio.timeout_at(deadline):
                await transaction.commit()
        except TimeoutError:
            transaction.connection.close()
            error = lost(f"no answer within {self._wait_s:g} s")
            parts.failed(error)
            raise error from None
        except InDoubt as doubt:
            self._give_back()
            if not await find_outcome(doubt, parts.pool, deadline):
                raise lost("the connection was lost during the commit") from None
        except BaseException as caught:  # noqa: BLE001 - translated, and raised
            await transaction.roll_back()
            raise tell_finally(caught, tx, parts) from None
        finally:
            self._give_back()
        parts.health.succeeded()
        parts.committed(tx.topics)

    def _give_back(self) -> None:
        connection, self._connection = self._connection, None
        self._transaction = None
        if self._timer is not None:
            self._timer.cancel()
        if connection is not None:
            self._parts.pool.give_back(connection)
            self._places.release()
