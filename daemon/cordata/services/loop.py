"""The parts of a service's loop: wake-ups, background tasks, and the pace of its passes.

async with wake_on(wake, stop, store, TOPIC), background(other_loop()):
    while not stop.is_set():
        await pace.next(full=full)      # not before requests had their turn
        full = await self.run_once()
        await wake.wait(poll_s)         # the topic, the stop, or time
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from cordata import clock
from cordata.store import Store

#: How long one wait on the store lasts; only bounds what a lost wake-up could hide.
_WAIT_S = 3600.0
#: Between the starts of two passes under load: it keeps them few and their batches large.
SPACING_S = 0.02
#: The same while requests commit side by side: with so many units, that many times the space.
LOADED = ((4, 3), (12, 6))
#: So many passes may follow each other at once after a rest: a single event is not delayed, though
#: it brings several wake-ups (of its commit or of its entry in a stream, of its acknowledgement).
AT_ONCE = 3
#: Units waiting for a commit above which requests go first.
BUSY_UNITS = 32
#: A pass waits for them this long at most: the engine falls behind, it never stands still.
YIELD_S = 0.1
_STEP_S = 0.01


class WakeEvent:
    """An event that one loop sleeps on; several calls of `set` wake it once."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        """Wake the loop, or let its next `wait` return at once."""
        self._event.set()

    async def wait(self, timeout_s: float) -> bool:
        """Until set, `timeout_s` at most. Returns whether it was set, and clears it."""
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
async def background(*loops: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run `loops` while inside and cancel them at the end; their errors keep their own type.

    Raises: what the block raised, as it is; or the error of the first loop that failed, which
    cancels the block.
    """
    failure: BaseException | None = None
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(loop) for loop in loops]
            try:
                yield
            except BaseException as error:  # noqa: BLE001 - raised again below
                failure = error
            for task in tasks:
                task.cancel()
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    if failure is not None:
        raise failure


@asynccontextmanager
async def wake_on(
    wake: WakeEvent, stop: asyncio.Event, store: Store | None = None, *topics: str
) -> AsyncIterator[None]:
    """While inside, the stop and the store's topics set the event."""
    loops = [_set_at_stop(wake, stop)]
    if store is not None:
        loops += [_set_at_topic(wake, store, topic) for topic in topics]
    async with background(*loops):
        yield


async def _set_at_stop(wake: WakeEvent, stop: asyncio.Event) -> None:
    await stop.wait()
    wake.set()


async def _set_at_topic(wake: WakeEvent, store: Store, topic: str) -> None:
    while True:
        if await store.wait(topic, _WAIT_S):
            wake.set()


class Pace:
    """When the next pass of one service may begin: passes are spaced under load, and give way to
    requests while commits queue.
    """

    def __init__(self, store: Store, *, spacing_s: float = SPACING_S) -> None:
        self._store = store
        self._spacing_s = spacing_s
        self._last = clock.monotonic() - spacing_s
        #: When the passes so far are paid for, each with its space.
        self._paid = self._last

    async def next(self, *, full: bool) -> None:
        """Until a pass may begin; `full`: the last one filled its batch, so do not space it."""
        if not full:
            await self._until(self._paid - (AT_ONCE - 1) * self._spacing_s)
            for units, factor in LOADED:
                if self._store.waiting > units:
                    await self._until(self._last + self._spacing_s * factor)
        deadline = clock.monotonic() + YIELD_S
        while self._busy() and clock.monotonic() < deadline:  # noqa: ASYNC110 - nothing signals it
            await asyncio.sleep(_STEP_S)
        self._last = clock.monotonic()
        paid = max(self._paid, self._last) + self._spacing_s
        self._paid = min(paid, self._last + AT_ONCE * self._spacing_s)

    async def _until(self, moment: float) -> None:
        wait_s = moment - clock.monotonic()
        if wait_s > 0.0:
            await asyncio.sleep(wait_s)

    def _busy(self) -> bool:
        return self._store.waiting > BUSY_UNITS
