"""The mounted applications of a test: started at the first request, stopped at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from cordata.http import compose
from cordata.http.asgi import Receive, Scope, Send
from cordata.http.lifespan import Lifespan
from cordata.registry import Mount
from cordata.testing.response import Response, request


class Mounted:
    """What a worker serves, without its HTTP server."""

    def __init__(self, mounts: Sequence[Mount], state: dict[str, Any]) -> None:
        self._app = compose(mounts)
        self._state = state
        self._lifespan = Lifespan(self._app, state)
        self._wanted = asyncio.Event()
        self._starting = asyncio.Lock()
        self._started = False

    async def live(self) -> None:
        """The lifespan's task, for the length of the test."""
        await self._wanted.wait()
        await self._lifespan.run()

    async def request(
        self, method: str, target: str, *, headers: Mapping[str, str], body: bytes
    ) -> Response:
        """One request. Raises: LifespanFailed; what the application raised."""
        await self._start()
        return await request(
            self._app, method, target, headers=headers, body=body, state=self._state
        )

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As an ASGI application of its own, which starts and stops by itself."""
        await self._start()
        scope["state"] = self._state | dict(scope.get("state", {}))
        await self._app(scope, receive, send)

    async def close(self) -> None:
        """Shut down what was started. Raises: LifespanFailed."""
        if self._started:
            self._started = False
            await self._lifespan.shutdown()

    async def _start(self) -> None:
        async with self._starting:
            if not self._wanted.is_set():
                self._wanted.set()
                await self._lifespan.startup()
                self._started = True
