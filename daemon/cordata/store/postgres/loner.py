"""Units that run alone: some at once, the others in queues, one for each kind.

The kinds take turns: of one that comes in hundreds, another one that comes now and then does not
wait for all, but for as many as there are kinds.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Any

from cordata.errors import StoreUnavailable
from cordata.store.postgres.alone import Alone, Parts
from cordata.store.postgres.entry import Entry
from cordata.store.postgres.fault import closed_in_commit
from cordata.store.postgres.habit import kind_of


class Loners:
    """The queues of units that run alone."""

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
        #: By kind, none of them empty; the first one has its turn.
        self._queues: dict[object, deque[Entry]] = {}
        #: Units that have not begun.
        self.queued = 0
        self._running = 0
        self._closed = False

    @property
    def waiting(self) -> int:
        """Units that wait for their commit."""
        return self.queued + self._running

    def send(self, entry: Entry) -> None:
        """Have a unit run alone."""
        if self._closed:
            entry.fail(StoreUnavailable("the store is closed"))
            return
        self._queues.setdefault(kind_of(entry.unit), deque()).append(entry)
        self.queued += 1
        if self._running < self._most:
            self._running += 1
            self._context.run(self._parts.crew.start, self._serve())

    def close(self) -> None:
        """Refuse what has not begun."""
        self._closed = True
        for queue in self._queues.values():
            for entry in queue:
                entry.fail(StoreUnavailable("the store is closed"))
        self._queues.clear()
        self.queued = 0

    async def _serve(self) -> None:
        try:
            while self._queues:
                entry = self._next()
                if not entry.future.done():
                    await self._run(entry)
        finally:
            self._running -= 1
            self._settled()

    def _next(self) -> Entry:
        """The oldest of the kind whose turn it is."""
        kind = next(iter(self._queues))
        queue = self._queues.pop(kind)
        entry = queue.popleft()
        self.queued -= 1
        if queue:  # behind all others
            self._queues[kind] = queue
        return entry

    async def _run(self, entry: Entry) -> None:
        refusal = None if entry.pioneer else self._parts.health.refusal()
        if refusal is not None:
            entry.fail(refusal)
            return
        ended = entry.context.run(self._parts.crew.start, self._run_whole(entry))
        ended.add_done_callback(entry.settle)
        await asyncio.wait((ended,))  # cancelled, it still tells the caller what became of it

    async def _run_whole(self, entry: Entry) -> Any:
        try:
            return await self._alone.run_now(entry.unit, entry.fence, entry)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or not task.cancelling():  # the unit raised it
                entry.fail(error)
                return None
            # The store has to be closed.
            if entry.transaction is not None and entry.transaction.ending:
                raise closed_in_commit() from None
            raise
