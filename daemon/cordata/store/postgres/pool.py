"""The connection pool of one process.

Why not psycopg_pool: when the server is gone, its callers get a timeout after `timeout` seconds,
without the reason, while background tasks try to connect; here the task that needs a connection
makes it and gets the reason at once. It also resets each connection by cursors, which `Connection`
does not need. To acquire a connection costs 4 us of processor time here and 14 to 30 us there, a
SELECT on `Connection` 60 to 80 us and on psycopg's 190 to 320 us (tests/bench/store_pool.py).
Connections are made when needed and reused last in, first out, so that a process with little load
has few of them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from cordata.errors import StoreUnavailable
from cordata.store.health import Busy
from cordata.store.postgres.connection import Connection
from cordata.store.postgres.fault import ServerFull
from cordata.store.tasks import own_error

#: Connections that are idle for this long are closed, except for one.
_IDLE_S = 60.0
#: A server without a free connection slot is not asked again for this long.
_FULL_S = 2.0


class Pool:
    """At most `size` connections; tasks that wait for one are served in order."""

    def __init__(self, connect: Callable[[], Awaitable[Connection]], *, size: int) -> None:
        self._connect = connect
        self._size = size
        self._loop = asyncio.get_running_loop()
        self._idle: list[Connection] = []
        #: Connections in use and those being made.
        self._taken = 0
        self._waiting: deque[asyncio.Future[Connection | None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        #: The error of a full server, and the loop time until which no new connection is tried.
        self._full: ServerFull | None = None
        self._full_until = 0.0
        #: Those that may be used again; any other is closed at its release.
        self._reusable: set[Connection] = set()
        self._closed = False

    @asynccontextmanager
    async def connection(self, deadline: float) -> AsyncIterator[Connection]:
        """A connection, until the block ends. `deadline`: loop time until which to wait for one.

        Raises: StoreUnavailable.
        """
        connection = await self.acquire(deadline)
        try:
            yield connection
        finally:
            self.release(connection)

    async def acquire(self, deadline: float) -> Connection:
        """A connection; the caller must `release` it. Raises: StoreUnavailable."""
        if self._closed:
            raise StoreUnavailable("the store is closed")
        while self._idle:
            connection = self._idle.pop()
            if connection.is_clean:
                self._taken += 1
                return connection
            self._close(connection)
        full = self._full is not None and self._loop.time() < self._full_until
        if self._taken < self._size and not (full and self._taken):
            self._taken += 1
            return await self._make(deadline)
        return await self._queue(deadline)

    async def _make(self, deadline: float) -> Connection:
        """A new connection; its slot is taken already."""
        try:
            connection = await self._connect()
        except ServerFull as error:
            self._taken -= 1  # no waiter takes the slot: its attempt would fail, too
            if not (self._taken or self._idle):
                self._fail_waiting(error)  # no connection will be released to them
                raise
            # The server is full, but this pool has some connections: use those for a while.
            self._full, self._full_until = error, self._loop.time() + _FULL_S
            return await self.acquire(deadline)
        except BaseException:
            self._free_slot()
            raise
        if self._closed:
            connection.close()
            self._free_slot()
            raise StoreUnavailable("the store is closed")
        self._reusable.add(connection)
        return connection

    async def _queue(self, deadline: float) -> Connection:
        future: asyncio.Future[Connection | None] = self._loop.create_future()
        self._waiting.append(future)
        try:
            async with asyncio.timeout_at(deadline):
                connection = await future
        except TimeoutError:
            self._unqueue(future)
            message = f"all {self._taken} connections are in use"
            # A task may time out after that pause, although it began to wait during it.
            if self._full is not None and self._loop.time() < self._full_until + _FULL_S:
                raise Busy(f"{message}; {self._full}", hint=self._full.hint) from None
            raise Busy(message, hint="raise [store] pool_size, if the server allows it") from None
        except asyncio.CancelledError:
            self._unqueue(future)
            raise
        return await self._make(deadline) if connection is None else connection

    def _unqueue(self, future: asyncio.Future[Connection | None]) -> None:
        """Remove a waiter that was cancelled; a connection or slot it got goes to the next one."""
        if future in self._waiting:
            self._waiting.remove(future)
        elif future.done() and not future.cancelled() and future.exception() is None:
            connection = future.result()
            if connection is None:
                self._free_slot()
            else:
                self.release(connection)

    def release(self, connection: Connection) -> None:
        """Return a connection; one that is not clean is closed, which rolls back what it did."""
        usable = connection in self._reusable and connection.is_clean
        if not usable or connection.has_too_many_statements:
            self._close(connection)
            self._free_slot()
            return
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(connection)
                return
        self._taken -= 1
        connection.idle_since = self._loop.time()
        self._idle.append(connection)
        if self._timer is None and len(self._idle) > 1:
            self._timer = self._loop.call_later(_IDLE_S, self._trim)

    def _free_slot(self) -> None:
        """Free the slot of a closed connection: the first waiter may make a new one."""
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                return
        self._taken -= 1

    def retire_all(self) -> None:
        """Close unused connections now, and the others at their release."""
        self.close_idle()
        self._reusable.clear()

    def close_idle(self) -> None:
        """Close all unused connections."""
        for connection in self._idle:
            self._close(connection)
        self._idle.clear()

    def _close(self, connection: Connection) -> None:
        self._reusable.discard(connection)
        connection.close()

    def _trim(self) -> None:
        self._timer = None
        now = self._loop.time()
        while len(self._idle) > 1 and now - self._idle[0].idle_since >= _IDLE_S:
            self._close(self._idle.pop(0))
        if len(self._idle) > 1:
            self._timer = self._loop.call_later(_IDLE_S, self._trim)

    def close(self) -> None:
        """Close idle connections now, the others at their release."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self.retire_all()
        self._fail_waiting(StoreUnavailable("the store is closed"))

    def _fail_waiting(self, error: StoreUnavailable) -> None:
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_exception(own_error(error))
