"""Large requests: few of them in memory, and one read at a time, so that memory stays flat."""

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

#: Bodies of more than `LARGE_BYTES` that one worker holds, and of them those of one account,
#: so that an account that sends slowly blocks no other one. Each costs three times its size.
MAX_BODIES, MAX_OF_ONE = 4, 2
#: How long a large document waits for the one before it.
WAIT_S = 10.0

_BUSY = "too many large requests come at once; try again"


class BodyLimit:
    """The body of one request, and what it holds of this worker's memory."""

    def __init__(self, large: Counter[int], account_id: int, allocation: Allocation) -> None:
        self._large = large
        self._account_id = account_id
        self._allocation = allocation
        self._is_large = False

    def grow(self, size: int) -> None:
        """The body has `size` bytes by now. Raises: TransportError (503)."""
        if size > LARGE_BYTES and not self._is_large:
            of_one = self._large[self._account_id]
            if of_one >= MAX_OF_ONE or self._large.total() >= MAX_BODIES:
                raise TransportError(503, _BUSY)
            self._large[self._account_id] = of_one + 1
            self._is_large = True
        if not self._allocation.grow_to(size):
            raise TransportError(503, _BUSY)

    def end(self) -> None:
        """The body is released."""
        if self._is_large:
            self._large[self._account_id] -= 1
            self._large += Counter()  # removes accounts that hold none


class ConcurrencyLimit:
    """The large requests of one worker: how many are held, and that one is read at a time."""

    def __init__(self) -> None:
        self._budget = MemoryBudget(MAX_BODIES * MAX_BODY_BYTES, MAX_OF_ONE * MAX_BODY_BYTES)
        #: By account.
        self._large: Counter[int] = Counter()
        self._one = asyncio.Lock()

    @contextmanager
    def body(self, account_id: int) -> Iterator[BodyLimit]:
        """While the body of an account's request is held."""
        with self._budget.allocation(account_id) as allocation:
            body = BodyLimit(self._large, account_id, allocation)
            try:
                yield body
            finally:
                body.end()

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        """While a large document is read: a tree of it is ten times its size. Raises:
        TransportError (503) when those before it take too long.
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
