"""Units that run alone: some at once, the others in a queue."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context

from cordata.errors import StoreUnavailable
from cordata.store.postgres.alone import Alone, Parts
from cordata.store.postgres.entry import Entry


class Loners:
    """The queue of units that run alone."""

    def __init__(
        self,
        parts: Parts,
        alone: Alone,
        settled: Callable[[], None],
        context: Context,
        *,
        most: int,
    ) -> None:
        """`most` at once; `settled` is called when some have ended."""
        self._parts = parts
        self._alone = alone
        self._settled = settled
        self._context = context
        self._most = most
        self._queue: deque[Entry] = deque()
        self._running = 0

    @property
    def queued(self) -> int:
        """Units that have not begun."""
        return len(self._queue)

    @property
    def waiting(self) -> int:
        """Units that wait for their commit."""
        return len(self._queue) + self._running

    def send(self, entry: Entry) -> None:
        """Have a unit run alone."""
        self._queue.append(entry)
        if self._running < self._most:
            self._running += 1
            self._context.run(self._parts.crew.start, self._serve())

    def close(self) -> None:
        """Refuse what has not begun."""
        for entry in self._queue:
            entry.fail(StoreUnavailable("the store is closed"))
        self._queue.clear()

    async def _serve(self) -> None:
        try:
            while self._queue:
                entry = self._queue.popleft()
                if not entry.future.done():
                    await self._run(entry)
        finally:
            self._running -= 1
            self._settled()

    async def _run(self, entry: Entry) -> None:
        refusal = self._parts.health.refusal()
        if refusal is not None:
            entry.fail(refusal)
            return
        work = self._alone.run_now(entry.unit, entry.fence)
        try:
            value = await entry.context.run(self._parts.crew.start, work)
        except asyncio.CancelledError:
            entry.fail(asyncio.CancelledError())
            raise
        except BaseException as error:  # noqa: BLE001 - a unit's failure is its caller's
            entry.fail(error)
        else:
            if not entry.future.done():
                entry.future.set_result(value)
