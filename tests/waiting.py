"""Waiting for what other processes and threads bring about."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
#: Between two looks: the first pause, and the longest, since a look may cost a program's start.
_FIRST_S, _LONGEST_S = 0.005, 0.05


def until(look: Callable[[], T | None], what: str = "it", *, timeout_s: float = 60.0) -> T:
    """What a look finds, once that is true. Raises: AssertionError after `timeout_s`."""
    end, pause_s = time.monotonic() + timeout_s, _FIRST_S
    while not (found := look()):
        assert time.monotonic() < end, f"{what}: not in {timeout_s:g} s"
        time.sleep(pause_s)
        pause_s = min(1.5 * pause_s, _LONGEST_S)
    return found


async def until_async(look: Callable[[], bool | Awaitable[bool]], timeout_s: float = 120.0) -> None:
    """The same on an event loop, with a look that may be a coroutine. Raises: TimeoutError."""
    pause_s = _FIRST_S
    async with asyncio.timeout(timeout_s):
        while True:
            found = look()
            if found if isinstance(found, bool) else await found:
                return
            await asyncio.sleep(pause_s)
            pause_s = min(1.5 * pause_s, _LONGEST_S)
