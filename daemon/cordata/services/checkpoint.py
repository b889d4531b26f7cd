"""Folds the embedded store's write-ahead log back, on the primary, away from the requests."""

from __future__ import annotations

import asyncio

from cordata.errors import StoreUnavailable
from cordata.heartbeat import Heartbeat
from cordata.log import logger
from cordata.services.leadership import Leadership
from cordata.services.loop import WakeEvent, wake_on
from cordata.store import CHECKPOINT_TOPIC, Store

log = logger("cordata.checkpoint")

#: Without a wake-up: a reader may have been in the way the last time.
_EVERY_S = 10.0
#: After a fold that left most of the log, not at once again.
_PAUSE_S = 0.1


class CheckpointService:
    """Sleeps until writers say that the log has grown; a standby leaves it alone."""

    name = "checkpoint"

    def __init__(self, store: Store, leadership: Leadership) -> None:
        self.heartbeat = Heartbeat()
        self._store = store
        self._leadership = leadership

    def status(self) -> str:
        """For STATUS=: what is wrong with the store, while something is."""
        state = self._store.stats().state
        return "" if state == "ok" else f"store {state}"

    async def run(self, stop: asyncio.Event) -> None:
        """Fold back until `stop`."""
        wake = WakeEvent()
        async with wake_on(wake, stop, self._store, CHECKPOINT_TOPIC):
            while not stop.is_set():
                self.heartbeat.touch()
                if self._leadership.leads and await self.run_once():
                    await asyncio.sleep(_PAUSE_S)
                await wake.wait(_EVERY_S)

    async def run_once(self) -> bool:
        """One look. Returns whether the log was folded back."""
        try:
            return await self._store.checkpoint() is not None
        except StoreUnavailable as error:
            log.debug("the log stays as it is: %s", error)
            return False
