"""Probes the server: with writes while the store is not ok, with a connection during a slow read.

A store that is not ok is tried from time to time, so that it recovers without traffic. A slow read
looks the same as a server that hangs, since the kernel of a hanging server still acknowledges data.
So after a while the probe makes a new connection during the read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cordata.errors import CordataError, PermanentError, StoreUnavailable
from cordata.store.postgres.fault import ServerFull
from cordata.store.postgres.unit_runner import Resources, UnitRunner
from cordata.store.tx import Tx

#: Limit of a test write.
_LIMIT_S = 5.0
#: Longer than nearly every read takes.
_ASK_AFTER_S = 2.0


class WriteProbe:
    """The test write of a HealthProbe."""

    def __init__(self, runner: UnitRunner, resources: Resources) -> None:
        self._runner = runner
        self._resources = resources
        self._busy = False

    def start(self) -> None:
        """Try it in the background, unless one is under way; its result changes the health."""
        if not self._busy:
            self._busy = True
            self._resources.tasks.start(self._probe())

    async def _probe(self) -> None:
        try:
            async with asyncio.timeout(_LIMIT_S):
                await self._runner.run_now(_write)
        except (_RolledBack, PermanentError):  # the latter for example without the right to a table
            self._resources.health.succeeded()
        except TimeoutError:
            self._resources.pool.close_idle()  # they may be as dead as this one
        except CordataError:
            pass  # the health has it
        finally:
            self._busy = False


class _RolledBack(Exception):
    """The server has taken the write."""


async def _write(tx: Tx) -> None:
    """Changes nothing. Raises: _RolledBack."""
    await tx.execute("store.probe")
    raise _RolledBack


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
            self._resources.health.failed(error)
            return error
        connection.close()
        return None
