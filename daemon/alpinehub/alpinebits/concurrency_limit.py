"""Bounds the memory of large requests: of their bodies, and one is read at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from weakref import WeakKeyDictionary

from alpinehub.alpinebits.document import MAX_BODY_BYTES
from alpinehub.alpinebits.transport_error import TransportError
from alpinehub.memory_budget import Allocation, MemoryBudget
from cordata import Context, Store

#: Largest bodies that one worker holds, and those of one account, so that an account that sends
#: slowly does not block the others. A body takes three times its size in memory.
MAX_BODIES, MAX_OF_ONE = 4, 2
#: How long a large document waits for the one before it.
WAIT_S = 10.0

BUSY = "too many large requests at once; try again"


class ConcurrencyLimit:
    """The limits of one worker: memory for bodies, and a lock for reading a large document."""

    def __init__(self) -> None:
        self._budget = MemoryBudget(MAX_BODIES * MAX_BODY_BYTES, MAX_OF_ONE * MAX_BODY_BYTES)
        self._one = asyncio.Lock()

    def body(self, account_id: int) -> AbstractContextManager[Allocation]:
        """The memory of one body, while it is needed."""
        return self._budget.allocation(account_id)

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        """Wait for the turn to read a large document, whose tree takes ten times its size.

        Raises: TransportError (503) after WAIT_S.
        """
        try:
            async with asyncio.timeout(WAIT_S):
                await self._one.acquire()
        except TimeoutError:
            raise TransportError(503, BUSY) from None
        try:
            yield
        finally:
            self._one.release()


_limits: WeakKeyDictionary[Store, ConcurrencyLimit] = WeakKeyDictionary()


def limit_of(ctx: Context) -> ConcurrencyLimit:
    """The limit of this process."""
    return _limits.get(ctx.store) or _limits.setdefault(ctx.store, ConcurrencyLimit())
