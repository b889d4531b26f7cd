"""A rolling upgrade: the primary hands over to one whose program has newer migrations.

    newer, standing by          older, leading
    schema pending: request ──> sees the request, stops in order, releases
    takes the lease, migrates   starts again, stands by until the request is met or has expired

Else the host that was upgraded first would wait for its schema until the last one is.
"""

from __future__ import annotations

import asyncio
import os
import socket

from cordata.errors import StoreUnavailable
from cordata.heartbeat import Heartbeat
from cordata.log import logger
from cordata.services.leadership import LEASE_TOPIC, PRIMARY, Leadership
from cordata.services.loop import WakeEvent, wake_on
from cordata.store import Store, is_takeover_requested

log = logger("cordata.primary")

#: A request wakes this service; only bounds what a lost wake-up could hide.
_LOOK_S = 5.0


def holder_name() -> str:
    """This process, as a holder of the lease is called."""
    return f"{socket.gethostname()}/{os.getpid()}"


class HandoverService:
    """Ends the role, in order, when another primary asks for the lease."""

    name = "handover"
    #: Tells the runner that ending early is its job.
    finite = True

    def __init__(self, store: Store, leadership: Leadership, *, holder: str) -> None:
        self.heartbeat = Heartbeat()
        self._store = store
        self._leadership = leadership
        self._holder = holder
        self._wake = WakeEvent()

    async def run(self, stop: asyncio.Event) -> None:
        """Watch for a request until `stop`; return when there is one."""
        async with wake_on(self._wake, stop, self._store, LEASE_TOPIC):
            while not stop.is_set():
                self.heartbeat.touch()
                if self._leadership.leads and await self.run_once():
                    log.warning("hands over to a primary with newer migrations")
                    return
                await self._wake.wait(_LOOK_S)

    async def run_once(self) -> bool:
        """One look. Returns whether another asks for the lease."""
        try:
            return await is_takeover_requested(self._store, name=PRIMARY, holder=self._holder)
        except StoreUnavailable:
            return False
