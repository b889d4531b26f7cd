"""Bounds the memory of large requests: few are held at once, and one is read at a time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from weakref import WeakKeyDictionary

from alpinehub.alpinebits.document import LARGE_BYTES, MAX_BODY_BYTES
from alpinehub.alpinebits.transport_error import TransportError
from alpinehub.memory_budget import Allocation, MemoryBudget
from cordata import Context, Store

#: Most bodies of more than `LARGE_BYTES` that one worker holds, and most of one account, so that an
#: account that sends slowly does not block the others. Each takes three times its size in memory.
MAX_BODIES, MAX_OF_ONE = 4, 2
#: How long a large document waits for the one before it.
WAIT_S = 10.0

_BUSY = "too many large requests at once; try again"


class BodyLimit:
    """The share of the worker's memory that the body of one request takes."""

    def __init__(self, large: Counter[int], account_id: int, allocation: Allocation) -> None:
        self._large = large
        self._account_id = account_id
        self._allocation = allocation
        self._is_large = False

    def grow(self, size: int) -> None:
        """Reserve `size` bytes in all. Raises: TransportError (503) beyond the limits."""
        if size > LARGE_BYTES and not self._is_large:
            of_one = self._large[self._account_id]
            if of_one >= MAX_OF_ONE or self._large.total() >= MAX_BODIES:
                raise TransportError(503, _BUSY)
            self._large[self._account_id] = of_one + 1
            self._is_large = True
        if not self._allocation.grow_to(size):
            raise TransportError(503, _BUSY)

    def end(self) -> None:
        """Release the place of a large body; the allocation is released by its own context."""
        if self._is_large:
            self._large[self._account_id] -= 1
            self._large += Counter()  # removes accounts whose count is 0


class ConcurrencyLimit:
    """The limits of one worker: bodies in memory, and a lock for reading a large document."""

    def __init__(self) -> None:
        self._budget = MemoryBudget(MAX_BODIES * MAX_BODY_BYTES, MAX_OF_ONE * MAX_BODY_BYTES)
        #: Large bodies in memory, by account id.
        self._large: Counter[int] = Counter()
        self._one = asyncio.Lock()

    @contextmanager
    def body(self, account_id: int) -> Iterator[BodyLimit]:
        """The limit of one body, while it is in memory."""
        with self._budget.allocation(account_id) as allocation:
            body = BodyLimit(self._large, account_id, allocation)
            try:
                yield body
            finally:
                body.end()

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        """Wait for the turn to read a large document, whose tree takes ten times its size.

        Raises: TransportError (503) after WAIT_S.
        """
        try:
            async with asyncio.timeout(WAIT_S):
                await self._one.acquire()
        except TimeoutError:
            raise TransportError(503, _BUSY) from None
        try:
            yield
        finally:
            self._one.release()


_limits: WeakKeyDictionary[Store, ConcurrencyLimit] = WeakKeyDictionary()


def limit_of(ctx: Context) -> ConcurrencyLimit:
    """The limit of this process."""
    limit = _limits.get(ctx.store)
    if limit is None:
        limit = _limits[ctx.store] = ConcurrencyLimit()
    return limit
