"""The HTTP service of a worker, in the intake layer: the first to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from cordata.config.sections import HttpConfig
from cordata.heartbeat import Heartbeat
from cordata.http import HttpServer


class HttpService:
    """Runs a server until `stop`."""

    name = "http"

    def __init__(
        self, server: HttpServer, *, before: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """`before` is awaited before a connection is accepted."""
        self.server = server
        self._before = before
        #: Set when connections are accepted.
        self.ready = asyncio.Event()
        self.heartbeat = Heartbeat(max_age_s=10.0)

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop`, then finish the requests in progress."""
        if self._before is not None:
            await self._before()
        await self.server.run(stop, ready=self.ready, tick=self.heartbeat.touch)

    def reload(self, config: HttpConfig) -> None:
        """Apply new limits to current and later requests."""
        self.server.reload(config)

    def status(self) -> str:
        """For STATUS=: `12 req/s; 3 in flight`."""
        return f"{self.server.requests_per_s:.0f} req/s; {self.server.state.in_flight} in flight"
