"""Topics: wakes the waiters of this process, and decides when other processes are notified."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable
from weakref import WeakKeyDictionary

#: The first wake-up of a topic is sent at once; further ones within this time are sent as one.
_THROTTLE_S = 0.01


class Topic:
    """The waiters for one topic in this process; no wake-up is lost between two waits of a task."""

    def __init__(self) -> None:
        #: Wake-ups so far, and the count after the last wait of each task.
        self._count = 0
        self._seen: WeakKeyDictionary[asyncio.Task[object], int] = WeakKeyDictionary()
        #: The same for a task that waits for the first time: the count after the last wait of any.
        self._taken = 0
        self._waiting: set[asyncio.Future[None]] = set()

    def wake(self) -> None:
        """Wake all waiters; for a task that does not wait now, its next wait ends at once."""
        self._count += 1
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

    async def wait(self, timeout_s: float) -> bool:
        """Wait for a wake-up: True; False after the timeout."""
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
    """The topics of one process; a subclass wakes other processes."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._topics: dict[str, Topic] = {}
        self._throttled: dict[str, bool] = {}

    @abstractmethod
    def broadcast(self, names: list[str]) -> None:
        """Wake the other processes soon. If it gets lost, their waiters end by their timeouts."""

    def topic(self, name: str) -> Topic:
        """The topic with this name."""
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = Topic()
        return topic

    def notify(self, names: Iterable[str]) -> None:
        """Wake the waiters of these topics: in this process now, in others soon."""
        names = list(names)
        for name in names:
            self.wake(name)
        self._broadcast_soon(names)

    def wake(self, name: str) -> None:
        """Wake the waiters of a topic in this process."""
        self.topic(name).wake()

    def take_pending(self) -> list[str]:
        """The topics that are still to be broadcast: the caller does it, not the throttle."""
        names = [name for name, again in self._throttled.items() if again]
        self._throttled.update(dict.fromkeys(names, False))
        return names

    def wake_all(self) -> None:
        """Wake all waiters of this process, after wake-ups may have been lost."""
        for topic in self._topics.values():
            topic.wake()

    def _broadcast_soon(self, names: Iterable[str]) -> None:
        now = []
        for name in names:
            if name in self._throttled:
                self._throttled[name] = True
            else:
                self._throttled[name] = False
                self._loop.call_later(_THROTTLE_S, self._throttle_ended, name)
                now.append(name)
        if now:
            self.broadcast(now)

    def _throttle_ended(self, name: str) -> None:
        if self._throttled.pop(name):
            self._throttled[name] = False
            self._loop.call_later(_THROTTLE_S, self._throttle_ended, name)
            self.broadcast([name])
