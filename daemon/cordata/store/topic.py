"""Topics: who waits in this process, and when the others are told."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable
from weakref import WeakKeyDictionary

#: Further wake-ups of a topic within this time travel together; the first one goes at once.
_GATHER_S = 0.01


class Topic:
    """Who waits for one topic in this process; no wake-up is lost between two waits of a task."""

    __slots__ = ("_count", "_seen", "_taken", "_waiting")

    def __init__(self) -> None:
        #: Wake-ups so far, and how many of them each task that waits again and again has seen.
        self._count = 0
        self._seen: WeakKeyDictionary[asyncio.Task[object], int] = WeakKeyDictionary()
        #: How many of them tasks have seen that waited for the first time.
        self._taken = 0
        self._waiting: set[asyncio.Future[None]] = set()

    def wake(self) -> None:
        """Wake all who wait; who does not wait now finds out at its next wait."""
        self._count += 1
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

    async def wait(self, timeout_s: float) -> bool:
        """True when woken, False after the timeout."""
        task = asyncio.current_task()
        assert task is not None
        if self._seen.get(task, self._taken) < self._count:
            self._see(task)
            return True
        before = self._count
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._waiting.add(future)
        timer = loop.call_later(timeout_s, _time_out, future)
        try:
            await future
        finally:
            timer.cancel()
            self._waiting.discard(future)
        self._see(task)
        return self._count > before

    def _see(self, task: asyncio.Task[object]) -> None:
        self._seen[task] = self._count
        self._taken = self._count


def _time_out(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class Topics(ABC):
    """The topics of one process; a store adds how word gets to the others."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._topics: dict[str, Topic] = {}
        self._gathering: dict[str, bool] = {}

    @abstractmethod
    def send(self, names: list[str]) -> None:
        """Tell the other processes soon. What gets lost costs a waiter the time of its timeout."""

    def topic(self, name: str) -> Topic:
        """The topic of a name."""
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = Topic()
        return topic

    def notify(self, names: Iterable[str]) -> None:
        """Wake who waits for any of these topics, here now and in other processes soon."""
        names = list(names)
        for name in names:
            self.topic(name).wake()
        self._tell(names)

    def gathered(self) -> list[str]:
        """Topics that the others are still to be told of; they are not told by themselves then."""
        names = [name for name, again in self._gathering.items() if again]
        self._gathering.update(dict.fromkeys(names, False))
        return names

    def wake_all(self) -> None:
        """Wake everybody here: word may have been missed."""
        for topic in self._topics.values():
            topic.wake()

    def _tell(self, names: Iterable[str]) -> None:
        now = []
        for name in names:
            if name in self._gathering:
                self._gathering[name] = True
            else:
                self._gathering[name] = False
                self._loop.call_later(_GATHER_S, self._gathered, name)
                now.append(name)
        if now:
            self.send(now)

    def _gathered(self, name: str) -> None:
        if self._gathering.pop(name):
            self._gathering[name] = False
            self._loop.call_later(_GATHER_S, self._gathered, name)
            self.send([name])
