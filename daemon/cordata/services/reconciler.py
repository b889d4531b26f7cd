"""Keeps Redis and the store in step, on the primary: see broker/redis/reconciler.py."""

from __future__ import annotations

import asyncio

from redis.exceptions import ResponseError

from cordata.broker.redis.reconciler import Reconciler
from cordata.broker.redis.state import REDIS_TOPIC
from cordata.errors import BrokerUnavailable, StoreUnavailable
from cordata.heartbeat import Heartbeat
from cordata.log import logger
from cordata.services.loop import WakeEvent, wake_on
from cordata.store import Store

log = logger("cordata.redis")

#: Between passes while something moves, and at most while nothing does.
_BUSY_S, _IDLE_S = 1.0, 5.0
#: When the store or Redis cannot be asked.
_RETRY_S = 0.1


class ReconcilerService:
    """Passes about once a second while there is traffic; at once when Redis may have lost data, or
    a process is gone.
    """

    name = "reconciler"

    def __init__(self, store: Store, reconciler: Reconciler) -> None:
        self.heartbeat = Heartbeat()
        self._store = store
        self._reconciler = reconciler
        self._wake = WakeEvent()
        self._trouble = ""

    def status(self) -> str:
        """For STATUS=."""
        return self._reconciler.status()

    async def run(self, stop: asyncio.Event) -> None:
        """Reconcile until `stop`. Raises: LeaseLost."""
        try:
            async with wake_on(self._wake, stop, self._store, REDIS_TOPIC):
                await self._reconcile(stop)
        finally:
            self._reconciler.close()

    async def _reconcile(self, stop: asyncio.Event) -> None:
        sleep_s = _BUSY_S
        while not stop.is_set():
            self.heartbeat.touch()
            moved = await self.run_once()
            if moved is None:
                await self._wake.wait(max(self._reconciler.pause_s, _RETRY_S))
                continue
            sleep_s = _BUSY_S if moved else min(sleep_s * 2, _IDLE_S)
            await self._wake.wait(sleep_s)

    async def run_once(self) -> bool | None:
        """One pass. Returns whether there was traffic; None: Redis or the store is away."""
        try:
            moved = await self._reconciler.run_once(self.heartbeat.touch)
        except (BrokerUnavailable, StoreUnavailable, ResponseError) as error:
            if isinstance(error, ResponseError):
                self._reconciler.log_refusal(error)
            elif not self._trouble:
                log.info("Redis is not reconciled: %s", error)
            self._trouble = str(error)
            return None
        self._trouble = ""
        return moved
