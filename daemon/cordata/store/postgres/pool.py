"""The connections of one process.

Not psycopg_pool: there a server that is gone shows only as a timeout, after `timeout` seconds and
without the reason, while a background task tries on; here whoever needs a connection makes it and
gets the reason at once. Connections are made when needed and kept as a stack, so that a process
with little to do keeps few of them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

from cordata.errors import StoreUnavailable
from cordata.store.postgres.connection import Connection
from cordata.store.postgres.fault import Busy

#: A connection that nobody needed for so long is closed, but for one.
_IDLE_S = 60.0


class Pool:
    """At most `size` connections; whoever waits for one is served in order."""

    def __init__(self, connect: Callable[[], Awaitable[Connection]], *, size: int) -> None:
        self._connect = connect
        self._size = size
        self._loop = asyncio.get_running_loop()
        self._idle: list[Connection] = []
        #: Those in use and those being made.
        self._taken = 0
        self._waiting: deque[asyncio.Future[Connection | None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        #: Counts up when all connections became worthless; older ones are closed when given back.
        self._generation = 0
        self._born: dict[Connection, int] = {}
        self._closed = False

    @property
    def open_count(self) -> int:
        """Connections there are."""
        return self._taken + len(self._idle)

    @asynccontextmanager
    async def connection(self, deadline: float) -> AsyncIterator[Connection]:
        """A connection, until the block ends. `deadline`: loop time until which to wait for one.

        Raises: StoreUnavailable.
        """
        connection = await self.take(deadline)
        try:
            yield connection
        finally:
            self.give_back(connection)

    async def take(self, deadline: float) -> Connection:
        """A connection that the caller gives back. Raises: StoreUnavailable."""
        if self._closed:
            raise StoreUnavailable("the store is closed")
        while self._idle:
            connection = self._idle.pop()
            if connection.idle:
                self._taken += 1
                return connection
            self._close(connection)
        if self._taken < self._size:
            self._taken += 1
            return await self._make()
        return await self._queue(deadline)

    async def _make(self) -> Connection:
        """A new connection; its place is taken already."""
        try:
            connection = await self._connect()
        except BaseException:
            self._free_place()
            raise
        if self._closed:
            connection.close()
            self._free_place()
            raise StoreUnavailable("the store is closed")
        connection.on_lost = partial(self._lost, connection)
        self._born[connection] = self._generation
        return connection

    async def _queue(self, deadline: float) -> Connection:
        future: asyncio.Future[Connection | None] = self._loop.create_future()
        self._waiting.append(future)
        try:
            async with asyncio.timeout_at(deadline):
                connection = await future
        except TimeoutError:
            self._unqueue(future)
            raise Busy(
                f"all {self._size} connections are in use",
                retry_after_s=1.0,
                hint="raise [store] pool_size if the server can bear it",
            ) from None
        except asyncio.CancelledError:
            self._unqueue(future)
            raise
        return await self._make() if connection is None else connection

    def _unqueue(self, future: asyncio.Future[Connection | None]) -> None:
        """The waiter went away; what it was given already goes to the next."""
        if future in self._waiting:
            self._waiting.remove(future)
        elif future.done() and not future.cancelled():
            connection = future.result()
            if connection is None:
                self._free_place()
            else:
                self.give_back(connection)

    def give_back(self, connection: Connection) -> None:
        """Return a connection; one that is not idle is closed, which rolls back what it did."""
        current = self._born.get(connection) == self._generation
        if self._closed or not current or connection.worn or not connection.idle:
            self._close(connection)
            self._free_place()
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

    def _free_place(self) -> None:
        """A place became free: the first who waits may make a connection in it."""
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                return
        self._taken -= 1

    def renew(self) -> None:
        """All connections lead to a server of no use any more."""
        self._generation += 1
        for connection in self._idle:
            self._close(connection)
        self._idle.clear()

    def _lost(self, connection: Connection) -> None:
        if connection in self._idle:
            self._idle.remove(connection)
            self._close(connection)

    def _close(self, connection: Connection) -> None:
        self._born.pop(connection, None)
        connection.close()

    def _trim(self) -> None:
        self._timer = None
        now = self._loop.time()
        while len(self._idle) > 1 and now - self._idle[0].idle_since >= _IDLE_S:
            self._close(self._idle.pop(0))
        if len(self._idle) > 1:
            self._timer = self._loop.call_later(_IDLE_S, self._trim)

    def close(self) -> None:
        """Close all that are idle now, the others when they are given back."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self.renew()
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_exception(StoreUnavailable("the store is closed"))
