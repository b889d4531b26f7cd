"""Probes the server: with writes while the store is not ok, with a connection during a slow read.

A store that is not ok is tried from time to time, so that it recovers without traffic. A slow read
looks the same as a server that hangs, since the kernel of a hanging server still acknowledges data.
So after a while the probe makes a new connection during the read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cordata.errors import PermanentError, StoreUnavailable
from cordata.store.postgres.fault import ConnectionLost, ServerError, ServerFull, server_unreachable
from cordata.store.postgres.transaction import Transaction
from cordata.store.postgres.unit import UnitTx
from cordata.store.postgres.unit_runner import Again, Resources

#: Needs the same as a unit: a server that accepts writes, and disk space (256 KiB). The temporary
#: table is rolled back, so nothing remains of it.
_WRITE = (
    "CREATE TEMPORARY TABLE cordata_probe ON COMMIT DROP AS"
    " SELECT repeat('x', 1000) AS filler FROM generate_series(1, 256)"
)
_LIMIT_S = 5.0
#: Longer than nearly every read takes.
_ASK_AFTER_S = 2.0


class WriteProbe:
    """The test write of a HealthProbe."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._busy = False

    def start(self) -> None:
        """Try it in the background, unless one is under way; its result changes the health."""
        if not self._busy:
            self._busy = True
            self._resources.tasks.start(self._probe())

    async def _probe(self) -> None:
        resources = self._resources
        deadline = asyncio.get_running_loop().time() + _LIMIT_S
        try:
            async with resources.pool.connection(deadline) as connection:
                transaction = Transaction(connection, resources.connector.settings, "newest")
                try:
                    async with asyncio.timeout_at(deadline):
                        transaction.send(_WRITE)
                        await transaction.sync()
                except TimeoutError:
                    connection.close()
                    raise server_unreachable(f"no answer within {_LIMIT_S:g} s") from None
                finally:
                    await transaction.roll_back()
        except (StoreUnavailable, ConnectionLost, ServerError) as error:
            judged = resources.judge(error, UnitTx(resources.queries, 0))
            if isinstance(judged, Again):
                judged = judged.error
            if not isinstance(judged, PermanentError):  # for example no right to make a table
                resources.failed(judged)
                return
        finally:
            self._busy = False
        resources.health.succeeded()


class _Wait:
    """A caller that waits for an answer of the server."""

    def __init__(self, timeout: asyncio.Timeout) -> None:
        self.timeout = timeout
        self.over = False
        #: Why no answer will come.
        self.gone: StoreUnavailable | None = None


class LivenessProbe:
    """Connects once for all waiting callers, again after each `_ASK_AFTER_S`."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._loop = asyncio.get_running_loop()
        self._answer: asyncio.Future[StoreUnavailable | None] | None = None

    @asynccontextmanager
    async def limit(self, deadline: float) -> AsyncIterator[None]:
        """Limits the block: until `deadline` (loop time), and not longer if the server is gone.

        Raises: TimeoutError; StoreUnavailable when the server did not accept a connection.
        """
        wait = _Wait(asyncio.timeout_at(deadline))
        timer = self._loop.call_later(_ASK_AFTER_S, self._begin, wait)
        try:
            async with wait.timeout:
                yield
        except TimeoutError:
            if wait.gone is not None:
                raise wait.gone from None
            raise
        finally:
            wait.over = True
            timer.cancel()

    def _begin(self, wait: _Wait) -> None:
        self._resources.tasks.start(self._watch(wait))

    async def _watch(self, wait: _Wait) -> None:
        while not wait.over:
            if self._answer is None or self._answer.done():
                self._answer = self._resources.tasks.start(self._ask())
            wait.gone = await asyncio.shield(self._answer)
            if wait.gone is not None:
                if not wait.over:
                    wait.timeout.reschedule(self._loop.time())
                return
            await asyncio.sleep(_ASK_AFTER_S)

    async def _ask(self) -> StoreUnavailable | None:
        try:
            connection = await self._resources.connector.connect()
        except ServerFull:  # the server has answered, so it is alive
            return None
        except StoreUnavailable as error:
            self._resources.failed(error)
            return error
        connection.close()
        return None
