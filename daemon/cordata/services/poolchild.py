"""The worker's child in the pool: READY waits for it, but not for long; nothing else does.

Its layer stands after the intake and before the delivery: requests that are still in hand may call
the pool, and on a host with one worker this child is all of it.
"""

from __future__ import annotations

import asyncio
import contextlib

from cordata.config.pool import PoolConfig
from cordata.core.pool.spec import ChildSpec
from cordata.heartbeat import Heartbeat
from cordata.log import logger
from cordata.pool.worker.keeper import Keeper
from cordata.services.loop import background

log = logger("cordata.pool")


class PoolChildGate:
    """Holds back READY and nothing else: it is of the intake, where all starts at one time."""

    name = "pool child's start"

    def __init__(self, ready: asyncio.Event) -> None:
        self.ready = ready

    async def run(self, stop: asyncio.Event) -> None:
        """It has nothing to do."""
        await stop.wait()


class PoolChildService:
    """Keeps the child. The role is ready without it: calls wait in the pool meanwhile."""

    name = "pool child"

    def __init__(self, spec: ChildSpec, config: PoolConfig) -> None:
        self.heartbeat = Heartbeat()
        self._keeper = Keeper(spec, config)
        self._wait_s = config.child_start_timeout_s
        #: The first child is warm, or was waited for long enough.
        self._settled = asyncio.Event()
        #: To stand in the intake.
        self.gate = PoolChildGate(self._settled)

    def status(self) -> str:
        """For STATUS=: that there is no warm child, while there is none."""
        return "" if self._keeper.up else "pool child starting"

    def reload(self, config: PoolConfig, *, log_level: str) -> None:
        """Other limits for the child that runs; the next one logs at this level."""
        self._keeper.reload(config, log_level=log_level)

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop`, and until the child has ended its call."""
        async with background(self._settle()):
            await self._keeper.run(stop, tick=self.heartbeat.touch)

    async def _settle(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._wait_s):
                await self._keeper.warmed.wait()
        if not self._keeper.up:
            log.info("ready without a pool child, which is starting; calls wait in the pool")
        self._settled.set()
