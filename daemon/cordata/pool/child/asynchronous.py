"""Async commands, on a loop that lives as long as the child. Imported when one is met first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextvars import copy_context
from typing import Any, TypeVar

from cordata.errors import CallCancelled
from cordata.pool.child.flow import Flow
from cordata.unhandled import watch_loop

T = TypeVar("T")


class Asynchronous:
    """Runs one coroutine at a time; tasks that it leaves behind go on with the next one."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._runner = asyncio.Runner()
        watch_loop(self._runner.get_loop())
        self._news = asyncio.Event()

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """What it returns. It is cancelled when nobody waits any more, and after `timeout_s`.

        Raises: CallCancelled then; else what it raised. None: a child_init, nobody can cancel it.
        """
        if timeout_s is not None:
            coroutine = self._watched(coroutine, timeout_s)
        try:
            return self._runner.run(coroutine, context=copy_context())
        except asyncio.CancelledError:
            raise CallCancelled from None

    def close(self) -> None:
        """End the loop, and the tasks that were left behind."""
        self._runner.close()

    async def drain(
        self, values: AsyncGenerator[Any, None], sink: Callable[[Any], None], *, paced: bool
    ) -> None:
        """Give each value to `sink`; `paced`: one for each credit."""
        try:
            async for value in values:
                if paced:
                    await self._take_credit()
                sink(value)
        finally:
            await values.aclose()

    async def _take_credit(self) -> None:
        while not self._flow.credits:
            self._news.clear()
            await self._news.wait()
        self._flow.credits -= 1

    async def _watched(self, coroutine: Coroutine[Any, Any, T], timeout_s: float) -> T:
        """With an ear for the manager."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        sock = self._flow.source.socket
        assert task is not None
        fd = -1 if sock is None else sock.fileno()

        def look() -> None:
            if self._flow.look():
                loop.remove_reader(fd)
                task.cancel()
            self._news.set()

        if fd >= 0:
            loop.add_reader(fd, look)
        timer = loop.call_later(timeout_s, task.cancel)
        look()  # what came together with the call is read already
        try:
            return await coroutine
        finally:
            timer.cancel()
            if fd >= 0:
                loop.remove_reader(fd)
