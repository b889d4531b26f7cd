"""Answers 503 while something keeps a worker from serving, so that nobody waits for an answer.

The sockets are listened on before the worker is there (by systemd, or by `cordata server`): whoever
connects meanwhile would wait for as long as the trouble lasts.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from cordata.config.sections import HttpConfig
from cordata.errors import ConfigError, StoreUnavailable
from cordata.services.alarm import pause

#: Of a worker whose configuration is invalid, which takes a person.
_RETRY_AFTER_S = 30
#: Trouble as short as that is not told: whoever waits is served in a moment.
_PATIENCE_S = 1.0
_LOOK_S = 0.1

#: What keeps a worker from serving, or None.
Trouble = Callable[[], StoreUnavailable | ConfigError | None]


@asynccontextmanager
async def refusing(
    sockets: Sequence[socket.socket], config: HttpConfig, error: StoreUnavailable | ConfigError
) -> AsyncIterator[None]:
    """While inside, every request on the sockets gets 503 with Retry-After."""
    if not sockets:
        yield
        return
    from cordata.http import HttpServer

    if isinstance(error, StoreUnavailable):
        body, retry_after_s = (
            b'{"error": "store_unavailable"}\n',
            max(1, round(error.retry_after_s)),
        )
    else:
        body, retry_after_s = b'{"error": "config_invalid"}\n', _RETRY_AFTER_S

    async def refuse(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            raise ValueError(scope["type"])
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"retry-after", b"%d" % retry_after_s),
        ]
        await send({"type": "http.response.start", "status": 503, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        # No path is logged: the application that knows which hold secrets is not there yet.
        server = HttpServer(refuse, sockets, config, logged_segments={"": 0})
        group.create_task(server.run(stop))
        try:
            yield
        finally:
            stop.set()


class RefusalService:
    """Of the lowest layer: there before any service that waits for the store."""

    name = "refusal"

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        config: HttpConfig,
        troubles: Sequence[Trouble],
    ) -> None:
        """`troubles`: of the services that may hold the start up."""
        self._sockets = sockets
        self._config = config
        self._troubles = troubles
        self._over = asyncio.Event()
        #: Nothing is accepted here now.
        self._free = asyncio.Event()
        self._free.set()

    async def make_way(self) -> None:
        """Return when the sockets are free for the one that serves. Two would be in each other's
        way: the event loop knows one reader of a socket.
        """
        self._over.set()
        await self._free.wait()

    async def run(self, stop: asyncio.Event) -> None:
        """Refuse while there is trouble, until the worker serves; then wait for the stop."""
        loop = asyncio.get_running_loop()
        since: float | None = None
        while not (stop.is_set() or self._over.is_set()):
            error = self._trouble()
            since = None if error is None else since or loop.time()
            if error is not None and since is not None and loop.time() - since >= _PATIENCE_S:
                await self._refuse(error, stop)
            await pause(stop, _LOOK_S)
        await stop.wait()

    async def _refuse(self, error: StoreUnavailable | ConfigError, stop: asyncio.Event) -> None:
        self._free.clear()
        try:
            async with refusing(self._sockets, self._config, error):
                while self._trouble() and not (stop.is_set() or self._over.is_set()):
                    await pause(stop, _LOOK_S)
        finally:
            self._free.set()

    def _trouble(self) -> StoreUnavailable | ConfigError | None:
        return next((error for trouble in self._troubles if (error := trouble())), None)
