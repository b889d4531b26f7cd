"""The tasks of one store, and the errors for their callers.

A task that was started runs to its end, even when no caller waits for it any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import Context
from copy import copy
from typing import Any, TypeVar

from cordata.errors import CordataError, StoreUnavailable

T = TypeVar("T")


class StoreTasks:
    """A task group that is open as long as the store. A task never fails: its future does."""

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._running: set[asyncio.Task[None]] = set()
        self._closed = False
        self._loop = asyncio.get_running_loop()

    async def open(self) -> None:
        """Open the group, before the first task."""
        await self._group.__aenter__()

    def start(
        self,
        work: Coroutine[Any, Any, T],
        *,
        context: Context | None = None,
        result: asyncio.Future[T] | None = None,
    ) -> asyncio.Future[T]:
        """Start a task, in a copy of the caller's context or in `context`. Returns its result as a
        future (`result`, if given); cancelling that does not cancel the task.
        """
        future: asyncio.Future[T] = self._loop.create_future() if result is None else result
        if self._closed:
            work.close()
            close_future(future)
            return future
        task = self._group.create_task(_run(work, future), context=context)
        self._running.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._running.discard(task)
            work.close()  # if it was cancelled before it began
            close_future(future)

        task.add_done_callback(ended)
        return future

    async def wait(self) -> None:
        """Wait until no task runs, including those that are started meanwhile."""
        while self._running:
            await asyncio.wait(self._running)

    async def close(self) -> None:
        """Cancel the running tasks and wait for their end."""
        self._closed = True
        for task in self._running:
            task.cancel()
        await self._group.__aexit__(None, None, None)


async def _run(work: Coroutine[Any, Any, T], future: asyncio.Future[T]) -> None:
    try:
        value = await work
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or not task.cancelling():  # the work itself raised it
            fail_future(future, error)
            return
        close_future(future)
        raise
    except BaseException as error:  # noqa: BLE001 - it must not end the task group
        fail_future(future, error)
    else:
        if not future.done():
            future.set_result(value)


def close_future(future: asyncio.Future[T]) -> None:
    """End the wait for a result that will not come, if it has not ended."""
    if not future.done():
        future.set_exception(StoreUnavailable("the store is closed"))
        future.exception()  # no warning of asyncio if no caller waits any more


def fail_future(future: asyncio.Future[Any], error: BaseException) -> None:
    """Set the exception of a future to what a unit raised, if a caller still waits for it.

    SystemExit and KeyboardInterrupt are passed to the caller, too: raised in the task of the store
    they would end the process, and with it the units of all other callers.
    """
    if future.done():
        return
    if isinstance(error, asyncio.CancelledError):
        future.cancel()
    elif isinstance(error, StopIteration | GeneratorExit):
        # A future refuses StopIteration; GeneratorExit would close the coroutine that awaits it.
        replacement = RuntimeError(f"a unit raised {type(error).__name__}")
        replacement.__cause__ = error
        future.set_exception(replacement)
    else:
        future.set_exception(error)


def own_error(error: CordataError) -> CordataError:
    """A copy of an error, one for each caller: a raised error object keeps its traceback."""
    return copy(error)
