"""The places of one consumer group in one worker: what waits for one, and who may take it.

    claimed ──put──> runs of the live lane ─────┐
            └──put──> runs of the backfill lane ─┴─take─> a place (live first) ──> handlers

A run is what is handled one after the other: one message, or several of one key.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter

from cordata.broker import Message, Want
from cordata.config.sections import EngineConfig
from cordata.core.delivery import mean_duration_s, prefetch_count
from cordata.core.lane import all_places, backfill_places, run_length
from cordata.core.outbox import LIVE
from cordata.registry import Handler

Run = Sequence[Message]


class Lane:
    """The runs of one lane: waiting, and in its places."""

    def __init__(self, places: int, batch: int) -> None:
        self.places = places
        self.waiting: deque[Run] = deque()
        #: By identity.
        self.running: dict[int, Run] = {}
        #: Runs that the relay may bring at any moment.
        self.coming = 0
        #: The last look found some that are due and that we would have to leave for want of room.
        self.more = False
        self._batch = batch
        self._mean_s = 0.0

    @property
    def held(self) -> int:
        """Runs in hand, or on their way."""
        return len(self.waiting) + len(self.running) + self.coming

    def wanted(self) -> int:
        """Runs to claim: none while more than half of what it should hold is there."""
        full = prefetch_count(self._mean_s, concurrency=self.places, batch=self._batch)
        return full - self.held if self.held <= full // 2 else 0

    def ended(self, run: Run, duration_s: float) -> None:
        """A run left its place."""
        del self.running[id(run)]
        self._mean_s = mean_duration_s(self._mean_s, (duration_s,))


class Places:
    """One handler's lanes and places."""

    def __init__(self, handler: Handler, config: EngineConfig) -> None:
        self.handler = handler
        concurrency = handler.concurrency or config.concurrency
        self.count = all_places(concurrency)
        self.live = Lane(concurrency, config.batch)
        self.backfill = Lane(backfill_places(concurrency), config.batch)
        self.closed = False
        self._idle: deque[asyncio.Future[None]] = deque()
        self._batch = config.batch
        #: Of one handler.
        self._mean_s = 0.0

    @property
    def held(self) -> int:
        """Runs in hand."""
        return self.live.held + self.backfill.held

    def want(self) -> Want:
        """What to claim."""
        return Want(live=self.live.wanted(), backfill=self.backfill.wanted(), run=self.run_length())

    def run_length(self) -> int:
        """Messages of a run at most."""
        return run_length(self._mean_s, batch=self._batch) if self.handler.key else 1

    def put(self, messages: Sequence[Message]) -> None:
        """Take in what was claimed: those of one key follow each other."""
        for run in _runs(messages):
            lane = self.live if run[0].lane == LIVE else self.backfill
            lane.waiting.append(run)
            if self._idle:
                self._wake()

    async def take(self) -> tuple[Lane, Run] | None:
        """The next run, for a place that is free; None: there will be none any more.

        Nothing of the backfill begins while something live waits.
        """
        while not self.closed:
            lane = self._next()
            if lane is not None:
                run = lane.waiting.popleft()
                lane.running[id(run)] = run
                if self.backfill.waiting and not self.live.waiting:
                    self._wake()  # it may have had to wait for this one to begin
                return lane, run
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle.append(future)
            await future
        return None

    async def take_whatever(self, ending: Callable[[], bool]) -> tuple[Lane, Run] | None:
        """As `take`, also when something that a handler left behind cancels this place."""
        while True:
            try:
                return await self.take()
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or ending():
                    raise
                task.uncancel()

    def messages(self) -> Iterator[Message]:
        """All in hand."""
        for lane in (self.live, self.backfill):
            for run in (*lane.waiting, *lane.running.values()):
                yield from run

    def ended(self, lane: Lane, run: Run, duration_s: float, count: int) -> None:
        """A run of a lane left its place after `count` messages."""
        lane.ended(run, duration_s)
        self._mean_s = mean_duration_s(self._mean_s, (duration_s / count,))

    def close(self) -> list[Message]:
        """No run begins any more. Returns the messages of those that wait."""
        self.closed = True
        left = [m for lane in (self.live, self.backfill) for run in lane.waiting for m in run]
        self.live.waiting.clear()
        self.backfill.waiting.clear()
        while self._idle:
            self._wake()
        return left

    def _next(self) -> Lane | None:
        live, backfill = self.live, self.backfill
        if live.waiting:
            return live if len(live.running) < live.places else None
        if backfill.waiting and len(backfill.running) < backfill.places:
            return backfill
        return None

    def _wake(self) -> None:
        while self._idle:
            future = self._idle.popleft()
            if not future.done():  # else its place was cancelled
                future.set_result(None)
                return


def _runs(messages: Sequence[Message]) -> Iterator[Run]:
    for key, run in groupby(messages, key=attrgetter("order_key")):
        if key is None:
            yield from ((message,) for message in run)
        else:
            yield tuple(run)
