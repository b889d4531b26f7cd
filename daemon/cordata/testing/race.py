"""race: runs two calls so that both have read before either of them writes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextvars import copy_context
from typing import Any, Generic, TypeVar

from cordata.store.tx import before_write

A = TypeVar("A")
B = TypeVar("B")
T = TypeVar("T")


async def race(a: Awaitable[A], b: Awaitable[B]) -> tuple[A, B]:
    """Run two calls of an application concurrently. Returns both results.

        first, second = await race(order(ctx, "boots", "key-1"), order(ctx, "boots", "key-1"))

    On PostgreSQL each runs its units and `transaction()`s in transactions of its own. Both stop
    before their first statement that writes or locks; when both have stopped, `a` runs to its end,
    then `b`. So `b` decides on data that it read before `a` wrote, which two workers do rarely: the
    test finds lost updates and duplicate rows. On SQLite, where writers take turns, `b` runs after
    `a`.

    Both run to their end. Raises: what `a` raised, else what `b` raised.
    """
    first, second = _Racer(a), _Racer(b)
    try:
        async with asyncio.TaskGroup() as group:
            for racer in (first, second):
                group.create_task(racer.run(), context=racer.context)
                await racer.reached.wait()
            for racer in (first, second):
                racer.go.set()
                await racer.ended.wait()
    finally:
        for racer in (first, second):
            if asyncio.iscoroutine(racer.work):  # cancelled before it began
                racer.work.close()
    return first.result(), second.result()


class _Racer(Generic[T]):
    """One of the two."""

    def __init__(self, work: Awaitable[T]) -> None:
        self.work = work
        #: It is about to write for the first time, or has ended.
        self.reached = asyncio.Event()
        self.go = asyncio.Event()
        self.ended = asyncio.Event()
        self.context = copy_context()
        self.context.run(before_write.set, self._pause)
        self._error: BaseException | None = None
        self._value: Any = None

    async def run(self) -> None:
        try:
            self._value = await self.work
        except Exception as error:  # noqa: BLE001 - of the code under test: raised by `result`
            self._error = error
        finally:
            self.reached.set()
            self.ended.set()

    async def _pause(self) -> None:
        self.reached.set()
        await self.go.wait()

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        value: T = self._value
        return value
