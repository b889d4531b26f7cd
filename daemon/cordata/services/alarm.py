"""What a service's loop sleeps on: a topic of the store, its stop, or time. Nothing is polled."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cordata.services.alongside import alongside
from cordata.store import Store

#: How long one wait on the store lasts; only bounds what a lost wake-up could hide.
_WAIT_S = 3600.0


class Alarm:
    """Set by whoever has work for the loop; coalesces."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def ring(self) -> None:
        """Wake the loop, or let its next `sleep` return at once."""
        self._event.set()

    async def sleep(self, timeout_s: float) -> bool:
        """Until rung, `timeout_s` at most. Returns whether it rang."""
        if not self._event.is_set():
            try:
                async with asyncio.timeout(timeout_s):
                    await self._event.wait()
            except TimeoutError:
                return False
        self._event.clear()
        return True


async def pause(stop: asyncio.Event, timeout_s: float) -> None:
    """Until `stop`, `timeout_s` at most."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await stop.wait()


@asynccontextmanager
async def waking(
    alarm: Alarm, stop: asyncio.Event, store: Store | None = None, topic: str = ""
) -> AsyncIterator[None]:
    """While inside, the stop and the store's topic ring the alarm."""
    loops = [_ring_at_stop(alarm, stop)]
    if store is not None:
        loops.append(_ring_at_topic(alarm, store, topic))
    async with alongside(*loops):
        yield


async def _ring_at_stop(alarm: Alarm, stop: asyncio.Event) -> None:
    await stop.wait()
    alarm.ring()


async def _ring_at_topic(alarm: Alarm, store: Store, topic: str) -> None:
    while True:
        if await store.wait(topic, _WAIT_S):
            alarm.ring()
