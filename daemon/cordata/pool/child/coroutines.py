"""Runs async commands on one event loop of the child. Imported for the first async command."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextvars import copy_context
from typing import Any, TypeVar

from cordata.errors import CallCancelled
from cordata.pool.child.current import Caller, unread_error
from cordata.pool.shared.protocol import Call
from cordata.unhandled import watch_loop

T = TypeVar("T")


class CommandLoop:
    """Runs one coroutine at a time; tasks that it leaves behind go on with the next one."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        watch_loop(self._runner.get_loop())
        self._news = asyncio.Event()

    def run(
        self,
        coroutine: Coroutine[Any, Any, T],
        caller: Caller | None = None,
        timeout_s: float = 0.0,
    ) -> T:
        """Run a coroutine and return its result. Cancelled when the caller does not wait any more,
        or after `timeout_s`; never without a caller. Raises: CallCancelled then; else what it
        raised.
        """
        if caller is not None:
            coroutine = self._watched(coroutine, caller, timeout_s)
        try:
            return self._runner.run(coroutine, context=copy_context())
        except asyncio.CancelledError:
            raise CallCancelled from None

    def close(self) -> None:
        """End the loop, and the tasks that were left behind."""
        self._runner.close()

    async def drain(
        self,
        values: AsyncGenerator[Any, None],
        sink: Callable[[Any], None],
        caller: Caller,
        call: Call,
        unread_timeout_s: float,
    ) -> None:
        """Pass each value to `sink`; those of a stream one for each credit.

        Raises: CallFailure when its reader takes nothing for `unread_timeout_s`.
        """
        try:
            async for value in values:
                if call.credits:
                    if not caller.credits:
                        await self._wait_for_credit(caller, call, unread_timeout_s)
                    caller.credits -= 1
                sink(value)
        finally:
            await values.aclose()

    async def _wait_for_credit(self, caller: Caller, call: Call, unread_timeout_s: float) -> None:
        try:
            async with asyncio.timeout(unread_timeout_s):
                while not caller.credits:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise unread_error(call, unread_timeout_s) from None

    async def _watched(
        self, coroutine: Coroutine[Any, Any, T], caller: Caller, timeout_s: float
    ) -> T:
        loop, task, file = asyncio.get_running_loop(), asyncio.current_task(), caller.fileno()
        assert task is not None

        def look() -> None:
            if caller.poll_cancelled():
                loop.remove_reader(file)
                task.cancel()
            self._news.set()

        if file >= 0:
            loop.add_reader(file, look)
        timer = loop.call_later(timeout_s, task.cancel)
        look()  # what came together with the call is read already
        try:
            return await coroutine
        finally:
            timer.cancel()
            if file >= 0:
                loop.remove_reader(file)
