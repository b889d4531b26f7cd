"""Whether a server that does not answer is still there.

A read may rightly take long, and a server that hangs looks just the same from within: its kernel
acknowledges what is sent. So whoever has waited for a while has a new connection made.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cordata.errors import StoreUnavailable
from cordata.store.postgres.alone import Parts
from cordata.store.postgres.fault import Crowded

#: Longer than nearly every read takes.
_PATIENCE_S = 2.0


class _Wait:
    """Somebody who waits for an answer of the server."""

    def __init__(self, timeout: asyncio.Timeout) -> None:
        self.timeout = timeout
        self.over = False
        #: Why there will be none.
        self.gone: StoreUnavailable | None = None


class Silence:
    """Asks once for all that wait, again after each `_PATIENCE_S`."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._loop = asyncio.get_running_loop()
        self._answer: asyncio.Future[StoreUnavailable | None] | None = None

    @asynccontextmanager
    async def limit(self, deadline: float) -> AsyncIterator[None]:
        """At most until `deadline` (loop time), and not if the server is gone.

        Raises: TimeoutError; StoreUnavailable when the server did not even take a connection.
        """
        wait = _Wait(asyncio.timeout_at(deadline))
        timer = self._loop.call_later(_PATIENCE_S, self._begin, wait)
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
        self._parts.crew.start(self._watch(wait))

    async def _watch(self, wait: _Wait) -> None:
        while not wait.over:
            if self._answer is None or self._answer.done():
                self._answer = self._parts.crew.start(self._ask())
            wait.gone = await asyncio.shield(self._answer)
            if wait.gone is not None:
                if not wait.over:
                    wait.timeout.reschedule(self._loop.time())
                return
            await asyncio.sleep(_PATIENCE_S)

    async def _ask(self) -> StoreUnavailable | None:
        try:
            connection = await self._parts.connector.connect()
        except Crowded:  # which is an answer, too
            return None
        except StoreUnavailable as error:
            self._parts.failed(error)
            return error
        connection.close()
        return None
