"""Waits for a store that cannot be opened yet, and answers 503 meanwhile.

What is wrong outside (a full disk, a missing mount, a damaged file) heals or needs a person; either
way the process is there when it is right again, and its clients are told instead of kept waiting.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from cordata import events
from cordata.app import App
from cordata.config import Config
from cordata.context import Context
from cordata.errors import StoreFull, StoreUnavailable
from cordata.log import fields, logger
from cordata.opening import open_context
from cordata.systemd import Notifier

log = logger("cordata.store")

_RETRY_S = 1.0
_EXTEND_S = 30.0
_BODY = b'{"error": "store_unavailable"}\n'


@asynccontextmanager
async def patient_context(
    config: Config, app: App, notifier: Notifier, sockets: Sequence[socket.socket] = ()
) -> AsyncIterator[Context]:
    """The Context, as soon as the store can be opened; until then the sockets' requests get 503.

    A signal meanwhile ends the process as it is: nothing is in hand yet.
    """
    async with AsyncExitStack() as stack:
        try:
            ctx = await stack.enter_async_context(open_context(config, app))
        except StoreUnavailable as error:
            event = events.DISK_FULL if isinstance(error, StoreFull) else events.STORE_FAILED
            hint = f" ({error.hint})" if error.hint else ""
            log.error("the store cannot be opened: %s%s", error, hint, extra=fields(event))
            async with _refusing(sockets, config, error):
                ctx = await _reopened(stack, config, app, notifier, error)
            log.warning("the store is open", extra=fields(events.STORE_HEALED))
        yield ctx


async def _reopened(
    stack: AsyncExitStack, config: Config, app: App, notifier: Notifier, error: StoreUnavailable
) -> Context:
    while True:
        notifier.extend_timeout(_EXTEND_S, f"waiting for the store ({error})")
        await asyncio.sleep(_RETRY_S)
        try:
            return await stack.enter_async_context(open_context(config, app))
        except StoreUnavailable as again:
            error = again


@asynccontextmanager
async def _refusing(
    sockets: Sequence[socket.socket], config: Config, error: StoreUnavailable
) -> AsyncIterator[None]:
    """While inside, every request on the sockets gets 503 with Retry-After."""
    if not sockets:
        yield
        return
    from cordata.http import HttpServer

    async def refuse(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            raise ValueError(scope["type"])
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(_BODY)),
            (b"retry-after", b"%d" % max(1, round(error.retry_after_s))),
        ]
        await send({"type": "http.response.start", "status": 503, "headers": headers})
        await send({"type": "http.response.body", "body": _BODY})

    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(HttpServer(refuse, sockets, config.http).run(stop))
        try:
            yield
        finally:
            stop.set()
