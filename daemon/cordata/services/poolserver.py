"""The pool's manager as a service of its role."""

from __future__ import annotations

import asyncio

from cordata.heartbeat import Heartbeat
from cordata.pool.server.server import PoolServer


class PoolServerService:
    """Ready when the sessions are read and connections are taken."""

    name = "pool"

    def __init__(self, server: PoolServer) -> None:
        self._server = server
        self.ready = asyncio.Event()
        self.heartbeat = Heartbeat()

    def status(self) -> str:
        """Children, queue, calls, sessions."""
        return self._server.status_line()

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop`, then until the calls in hand are answered."""
        await self._server.run(stop, ready=self.ready, tick=self.heartbeat.touch)
