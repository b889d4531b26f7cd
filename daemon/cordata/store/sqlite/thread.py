"""Threads for blocking calls; each result is a future of the loop.

They are daemon threads: a wait for the write lock cannot be interrupted and must not delay the
exit.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from cordata.store.tasks import fail_future

T = TypeVar("T")


class CallThreads:
    """At most `count` threads with one queue of calls; each thread starts when it is needed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str, count: int = 1) -> None:
        self._loop = loop
        self._name = name
        self._count = count
        self._threads: list[threading.Thread] = []
        self._queue: SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None] = (
            SimpleQueue()
        )
        #: Calls that have not returned.
        self.busy = 0

    def call(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Call a function in a thread. Cancelling the future does not stop the call."""
        future: asyncio.Future[T] = self._loop.create_future()
        if self.busy >= len(self._threads) < self._count:
            thread = threading.Thread(
                target=self._work, name=f"{self._name}-{len(self._threads)}", daemon=True
            )
            self._threads.append(thread)
            thread.start()
        self.busy += 1
        self._queue.put((function, future))
        return future

    async def run(self, function: Callable[[], T]) -> T:
        """As `call`; when cancelled, it waits for the end of the call first."""
        future = self.call(function)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await asyncio.wait([future])
            raise

    def stop(self) -> None:
        """End the threads after their calls; waits for them only if no call is left."""
        for _ in self._threads:
            self._queue.put(None)
        if not self.busy:
            for thread in self._threads:
                thread.join()
        self._threads.clear()

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            function, future = job
            value, error = None, None
            try:
                value = function()
            except BaseException as caught:  # noqa: BLE001 - raised where the future is awaited
                error = caught
            try:
                self._loop.call_soon_threadsafe(self._finish, future, value, error)
            except RuntimeError:  # the loop is closed, and no caller waits any more
                return
            del job, function, future, value, error  # while it waits for the next call

    def _finish(
        self, future: asyncio.Future[Any], value: object, error: BaseException | None
    ) -> None:
        self.busy -= 1
        if error is not None:
            fail_future(future, error)
        elif not future.done():
            future.set_result(value)
