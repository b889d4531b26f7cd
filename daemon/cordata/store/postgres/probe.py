"""Probes the server: with writes while the store is not ok, with a connection during slow work.

A store that is not ok is tried from time to time, so that it recovers without traffic. A slow read
or migration looks the same as a server that hangs, since the kernel of a hanging server still
acknowledges data. So after a while the probe makes a new connection meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from cordata.errors import PermanentError, StoreUnavailable
from cordata.store.postgres.connection import Connection
from cordata.store.postgres.fault import ServerFull
from cordata.store.postgres.unit_runner import Resources, UnitRunner

#: Limit of a test write.
_LIMIT_S = 5.0
#: Longer than nearly every read takes.
_ASK_AFTER_S = 2.0


async def try_write(runner: UnitRunner, resources: Resources) -> None:
    """Write something; the result changes the health."""
    try:
        async with asyncio.timeout(_LIMIT_S):
            await runner.run_now(lambda tx: tx.execute("store.probe"))
    except PermanentError:  # for example without the right to a table
        resources.health.succeeded()
    except TimeoutError:
        resources.pool.close_idle()  # they may be as dead as this one


class LivenessProbe:
    """Connects from time to time while a read or a migration is slow. If the server does not accept
    a connection, the store is not ok, and the connections of the slow ones are closed.
    """

    def __init__(
        self,
        resources: Resources,
        connect: Callable[[], Awaitable[Connection]],
        *,
        patience_s: float = 0.0,
    ) -> None:
        """`connect`: as the connections that are watched were made. `patience_s`: they are closed
        when no attempt has succeeded for this long; 0: at the first failure.
        """
        self._resources = resources
        self._connect = connect
        self._patience_s = patience_s
        self._loop = asyncio.get_running_loop()
        #: The connections that are watched, and the loop time since when.
        self._watched: dict[Connection, float] = {}
        self._running = False

    @contextmanager
    def watch(self, connection: Connection) -> Iterator[None]:
        """Watch a connection while the block uses it."""
        self._watched[connection] = self._loop.time()
        timer = self._loop.call_later(_ASK_AFTER_S, self._start)
        try:
            yield
        finally:
            timer.cancel()
            del self._watched[connection]

    def _start(self) -> None:
        if not self._running:
            self._running = True
            self._resources.tasks.start(self._probe())

    async def _probe(self) -> None:
        answered_at = self._loop.time()
        try:
            while self._slow():
                try:
                    (await self._connect()).close()
                    answered_at = self._loop.time()
                except ServerFull:  # the server has answered, so it is alive
                    answered_at = self._loop.time()
                except StoreUnavailable as error:
                    if self._loop.time() - answered_at >= self._patience_s:
                        self._resources.health.failed(error)
                        for connection in self._slow():
                            connection.close("the server accepts no connection")
                await asyncio.sleep(_ASK_AFTER_S)
        finally:
            self._running = False

    def _slow(self) -> list[Connection]:
        since = self._loop.time() - _ASK_AFTER_S
        return [one for one, begun in self._watched.items() if begun <= since]
