"""Group commit: the units of concurrent requests share transactions.

    run() -> queue -> lanes: one Lockstep after the other -> answers
          -> alone: kinds that do not fit in, and units whose shared transaction died

While one lane waits for its commit, the next batch gathers. A lane takes what is there when it is
free, so the busier it is the more share a transaction; a second lane, on a connection of its own,
helps when there is plenty, or when the first one takes unusually long.

Whoever got an answer just now is about to ask for the next thing: those of one batch come together
again, and would for ever find the other half of them under way. So a lane waits for them, as long
as they keep coming, but never for more than a part of what a batch takes.

A shared transaction that dies takes nobody with it: who is known to have broken it runs alone, the
others share another one, or run alone, too, if that dies as well.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from contextvars import copy_context
from typing import Any

from cordata.config.sections import StoreConfig
from cordata.errors import StoreUnavailable
from cordata.store.fence import Fence
from cordata.store.postgres.alone import Alone, Parts
from cordata.store.postgres.committer import GRACE_S, Committer
from cordata.store.postgres.connection import Connection
from cordata.store.postgres.entry import Entry, again
from cordata.store.postgres.fault import Busy
from cordata.store.postgres.habit import Habits
from cordata.store.postgres.loner import Loners
from cordata.store.tx import Bookkeeping, Unit, before_write

#: Batches of one process under way at once.
_LANES = 2
#: For so many units the second one begins at once. A batch costs the server as much as several
#: units do, so fewer of them had better wait for the first one.
_PLENTY = 24
#: They wait for so long at least and at most; in between it is what a batch took lately.
_PATIENCE_S = (0.004, 0.05)
#: Where so many units were under way or waiting, a batch waits for those to come again ...
_SEVERAL = 4
#: ... while there are more of them after each such time ...
_TICK_S = 0.001
#: ... and no longer than this part of what a batch took lately.
_GATHERING = 0.5
#: Weight of the last batch in that.
_LATEST = 0.2
#: A connection that could not be made is tried once more if that was known so soon.
_HASTY_S = 0.5


class Batcher:
    """The queue of units, and the lanes that serve it."""

    def __init__(self, parts: Parts, alone: Alone, config: StoreConfig) -> None:
        self._parts = parts
        self._alone = alone
        self._max_batch = config.max_batch
        self._max_waiting = config.max_waiting
        self._timeout_s = config.write_timeout_s
        self._loop = asyncio.get_running_loop()
        #: That of whoever opened the store: no request's, whose identifiers a lane would bear.
        self._context = copy_context()
        self._habits = Habits()
        self._queue: deque[Entry] = deque()
        # Half of the connections: the others are for batches, reads and transactions.
        most = max(1, config.pool_size // 2)
        self._loners = Loners(parts, alone, self._settle, self._context, most=most)
        self._committer = Committer(
            parts,
            self._habits,
            self._loners,
            self._put_back,
            prepared=config.prepared_statements,
            timeout_s=config.write_timeout_s,
        )
        self._lanes = 0
        self._patience_s = _PATIENCE_S[0]
        #: Units that were in the last batch, or waited when it had ended.
        self._recent = 0
        self._gathering = False
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        #: Units in a transaction.
        self._under_way = 0
        self._drained: asyncio.Future[None] | None = None

    @property
    def waiting(self) -> int:
        """Units that wait for their commit."""
        return len(self._queue) + self._under_way + self._loners.waiting

    @property
    def commits(self) -> int:
        """Since the start."""
        return self._committer.commits + self._alone.commits

    @property
    def units(self) -> int:
        """Since the start."""
        return self._committer.units + self._alone.units

    async def run(
        self, unit: Unit[Any], fence: Fence | None, *, bookkeeping: Bookkeeping | None = None
    ) -> Any:
        """Run a unit in the next shared transaction (bookkeeping alone); return after its commit.

        Cancelling is safe: the unit is undone if it was alone in its transaction, or had not
        written, and runs wholly if it had.
        """
        refusal = self._parts.health.refusal()
        if refusal is not None:
            raise refusal
        if len(self._queue) + self._loners.queued >= self._max_waiting:
            raise StoreUnavailable(f"{self.waiting} units wait for a commit", retry_after_s=1)
        entry = Entry(unit, fence, self._loop.create_future(), self._loop.time())
        entry.bookkeeping = bookkeeping
        entry.pioneer = self._parts.health.state != "ok"
        if bookkeeping or before_write.get() is not None or self._habits.alone(unit):
            self._loners.send(entry)
        else:
            self._queue.append(entry)
            self._call_lane()
        return await entry.future

    async def drain(self) -> None:
        """Wait until no unit waits any more."""
        while self.waiting:
            if self._drained is None or self._drained.done():
                self._drained = self._loop.create_future()
            await asyncio.shield(self._drained)

    def close(self) -> None:
        """Refuse what still waits to begin, and what would begin again."""
        self._closed = True
        for entry in self._queue:
            entry.fail(StoreUnavailable("the store is closed"))
        self._queue.clear()
        self._loners.close()

    def _settle(self) -> None:
        drained = self._drained
        if drained is not None and not drained.done() and not self.waiting:
            drained.set_result(None)

    def _put_back(self, entries: Iterable[Entry]) -> None:
        """These run again, before all others."""
        if self._closed:
            for entry in entries:
                entry.fail(StoreUnavailable("the store is closed"))
            return
        self._queue.extendleft(reversed([*entries]))

    def _call_lane(self) -> None:
        """Have the queue served: by the lane under way, unless that would take too long."""
        plenty = len(self._queue) >= _PLENTY and not self._gathering
        if not self._lanes or (self._lanes < _LANES and plenty):
            self._start_lane()
        elif self._lanes < _LANES and self._timer is None:
            self._timer = self._loop.call_later(self._patience_s, self._lose_patience)

    def _lose_patience(self) -> None:
        self._timer = None
        if not self._queue or self._lanes >= _LANES:
            return
        left_s = self._queue[0].since + self._patience_s - self._loop.time()
        if self._lanes and (left_s > 0 or self._gathering):  # a gathering ends soon
            self._timer = self._loop.call_later(max(left_s, _TICK_S), self._lose_patience)
        else:
            self._start_lane()

    def _start_lane(self) -> None:
        self._lanes += 1
        self._context.run(self._parts.crew.start, self._lane())

    async def _lane(self) -> None:
        try:
            while self._queue:
                if self._lanes == 1 and self._recent >= _SEVERAL:
                    await self._gather()
                await self._serve()
        finally:
            self._lanes -= 1
            if self._queue and not self._closed:  # it died of its batch
                self._call_lane()
            self._settle()

    async def _gather(self) -> None:
        """Wait for those who come again."""
        enough, count = min(self._recent, _PLENTY), 0
        end = self._loop.time() + self._patience_s * _GATHERING
        self._gathering = True
        try:
            while count < len(self._queue) < enough and self._loop.time() < end:
                count = len(self._queue)
                await asyncio.sleep(_TICK_S)
        finally:
            self._gathering = False

    async def _serve(self) -> None:
        """Run one batch."""
        try:
            connection = await self._connect(self._loop.time() + self._timeout_s + GRACE_S)
        except StoreUnavailable as error:
            self._parts.failed(error)
            for entry in self._take():
                entry.fail(again(error))
            return
        begun = self._loop.time()
        deadline = begun + self._timeout_s + GRACE_S
        entries = self._take()
        self._under_way += len(entries)
        try:
            try:
                doubt = await self._committer.run(entries, connection, deadline)
            finally:
                self._parts.pool.give_back(connection)
            if doubt is not None:
                await self._committer.find_out(doubt, deadline)
        finally:
            self._under_way -= len(entries)
        self._recent = len(entries) + len(self._queue)
        took_s = min(max(self._loop.time() - begun, _PATIENCE_S[0]), _PATIENCE_S[1])
        self._patience_s += _LATEST * (took_s - self._patience_s)

    async def _connect(self, deadline: float) -> Connection:
        """A connection. Raises: StoreUnavailable."""
        begun = self._loop.time()
        try:
            return await self._parts.pool.take(deadline)
        except StoreUnavailable as error:
            if isinstance(error, Busy) or self._loop.time() - begun > _HASTY_S:
                raise
        return await self._parts.pool.take(deadline)

    def _take(self) -> list[Entry]:
        """The next batch: those whose callers still wait, and have not waited too long."""
        oldest = self._loop.time() - self._timeout_s
        taken: list[Entry] = []
        queue = self._queue
        while queue and len(taken) < self._max_batch:
            entry = queue.popleft()
            if entry.future.done():
                continue
            if entry.since < oldest:
                entry.fail(Busy(f"no commit within {self._timeout_s:g} s", retry_after_s=1.0))
                continue
            taken.append(entry)
        return taken
