"""Checkpoints the embedded store's write-ahead log, on the primary, not during requests."""

from __future__ import annotations

import asyncio

from cordata.errors import StoreUnavailable
from cordata.heartbeat import Heartbeat
from cordata.log import logger
from cordata.services.loop import WakeEvent, wake_on
from cordata.store import CHECKPOINT_TOPIC, Store

log = logger("cordata.checkpoint")

#: Longest pause: a reader may have blocked the last checkpoint.
_EVERY_S = 10.0
#: Pause after a checkpoint, which may have left most of the log.
_PAUSE_S = 0.1


class CheckpointService:
    """Checkpoints when writers notify that the log has grown."""

    name = "checkpoint"

    def __init__(self, store: Store) -> None:
        self.heartbeat = Heartbeat()
        self._store = store

    async def run(self, stop: asyncio.Event) -> None:
        """Run checkpoints until `stop`."""
        wake = WakeEvent()
        async with wake_on(wake, stop, self._store, CHECKPOINT_TOPIC):
            while not stop.is_set():
                self.heartbeat.touch()
                if await self.run_once():
                    await asyncio.sleep(_PAUSE_S)
                await wake.wait(_EVERY_S)

    async def run_once(self) -> bool:
        """One checkpoint. Returns whether it was run."""
        try:
            return await self._store.checkpoint() is not None
        except StoreUnavailable as error:
            log.debug("no checkpoint: %s", error)
            return False
