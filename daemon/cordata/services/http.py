"""The HTTP service of a worker: first layer, so that it stops taking requests first."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cordata.beat import Beat
from cordata.config.sections import HttpConfig
from cordata.http import AsgiApp, HttpServer, HttpStats


class HttpService:
    """Serves an ASGI application until it is told to stop."""

    name = "http"

    def __init__(
        self,
        app: AsgiApp,
        sockets: Sequence[socket.socket],
        config: HttpConfig,
        state: dict[str, Any] | None = None,
        *,
        spread: Path | None = None,
        logged_segments: Mapping[str, int] | None = None,
        error_texts: Mapping[str, str] | None = None,
        first: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`state["cordata"]` is the Context, which requests find in `scope["state"]`.

        `first` is awaited before a connection is accepted.
        `spread`: a file in the runtime directory, the same for all workers; it,
        `logged_segments` and `error_texts`: see `HttpServer`.
        """
        self.server = HttpServer(
            app,
            sockets,
            config,
            state,
            spread=spread,
            logged_segments=logged_segments,
            error_texts=error_texts,
        )
        self._first = first
        #: Connections are accepted.
        self.ready = asyncio.Event()
        self.beat = Beat(max_age_s=10.0)

    async def run(self, stop: asyncio.Event) -> None:
        """Serve; after `stop` drain, and return when the hands are empty."""
        if self._first is not None:
            await self._first()
        await self.server.run(stop, ready=self.ready, tick=self.beat.touch)

    async def run_once(self) -> None:
        """One sweep over deadlines."""
        self.server.sweep()

    def reload(self, config: HttpConfig) -> None:
        """Apply new limits to this and all later requests."""
        self.server.reload(config)

    def stats(self) -> HttpStats:
        """What the server is doing."""
        return self.server.stats()

    def status(self) -> str:
        """For STATUS=: `12 req/s; 3 in flight`."""
        stats = self.server.stats()
        return f"{stats.requests_per_s:.0f} req/s; {stats.in_flight} in flight"
