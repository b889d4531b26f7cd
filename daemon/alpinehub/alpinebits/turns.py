"""Large requests: few of them in memory, and one read at a time, so that memory stays flat."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from alpinehub.alpinebits.refusal import Refusal

if TYPE_CHECKING:
    from cordata import Context, Store

#: Bodies of more than `form.LARGE_BYTES` that one worker holds; each costs three times its size.
MAX_BODIES = 4
#: How long a large document waits for the one before it.
WAIT_S = 10.0

_BUSY = "too many large requests come at once; try again"


class Turns:
    """Who of one worker's clients may be large."""

    def __init__(self) -> None:
        self._bodies = 0
        self._one = asyncio.Lock()

    @contextmanager
    def body(self) -> Iterator[None]:
        """While a large body is held. Raises: Refusal (503)."""
        if self._bodies >= MAX_BODIES:
            raise Refusal(503, _BUSY)
        self._bodies += 1
        try:
            yield
        finally:
            self._bodies -= 1

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        """While a large document is read: a tree of it is ten times its size. Raises: Refusal (503)
        when those before it take too long.
        """
        try:
            async with asyncio.timeout(WAIT_S):
                await self._one.acquire()
        except TimeoutError:
            raise Refusal(503, _BUSY) from None
        try:
            yield
        finally:
            self._one.release()


_turns: WeakKeyDictionary[Store, Turns] = WeakKeyDictionary()


def turns_of(ctx: Context) -> Turns:
    """Those of this process."""
    turns = _turns.get(ctx.store)
    if turns is None:
        turns = _turns[ctx.store] = Turns()
    return turns
