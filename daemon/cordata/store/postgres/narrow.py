"""Narrows: units that were in each other's way run one at a time for a while.

Units that lock the same rows in different orders meet in a deadlock, which the server notices after
its `deadlock_timeout` (a second), to let one of them go on; behind it wait the next two.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

from cordata.store.tx import Unit

#: So long after the last time.
_NARROW_S = 10.0

#: Whose turn the running task has.
_turn: ContextVar[object] = ContextVar("cordata_store_turn", default=None)


class Narrowed(Exception):
    """Since the unit began to wait for a connection it has become one that takes turns."""


class Narrows:
    """Which functions' units take turns, in one process."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._locks: dict[object, tuple[asyncio.Lock, float]] = {}

    def add(self, unit: Unit[Any]) -> None:
        """Let units of the same function run one at a time."""
        key, now = _key(unit), self._loop.time()
        lock = self._locks[key][0] if key in self._locks else asyncio.Lock()
        for other, (taken, until) in [*self._locks.items()]:
            if until <= now and not taken.locked():  # functions that are made anew, never to return
                del self._locks[other]
        self._locks[key] = (lock, now + _NARROW_S)

    @asynccontextmanager
    async def turn(self, unit: Unit[Any]) -> AsyncIterator[None]:
        """The turn of a unit; most need not wait for one."""
        key = _key(unit)
        if key not in self._locks:
            yield
            return
        lock, until = self._locks[key]
        if self._loop.time() >= until and not lock.locked():
            del self._locks[key]
            yield
            return
        async with lock:
            token = _turn.set(key)
            try:
                yield
            finally:
                _turn.reset(token)

    def check(self, unit: Unit[Any]) -> None:
        """See that a unit that is about to begin has the turn that it needs. Raises: Narrowed."""
        if self._locks:
            key = _key(unit)
            if key in self._locks and _turn.get() != key:
                raise Narrowed


def _key(unit: Unit[Any]) -> object:
    return getattr(unit, "__code__", unit)
