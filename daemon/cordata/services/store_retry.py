"""Opens the store at the start of a process: retries until it can, and answers 503 meanwhile.

What is wrong outside (a full disk, a missing mount, a damaged file) heals or needs a person; either
way the process is there when it is right again, and its clients are told instead of kept waiting.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from cordata import events
from cordata.app import App
from cordata.config import Config
from cordata.context import Context
from cordata.errors import StoreFull, StoreUnavailable
from cordata.factory import open_context
from cordata.log import LogThrottle, fields, logger, with_hint
from cordata.services.unavailable import answering_503
from cordata.systemd import Notifier

log = logger("cordata.store")

_RETRY_S = 1.0
_EXTEND_S = 30.0


@asynccontextmanager
async def open_context_with_retry(
    config: Config, app: App, notifier: Notifier, sockets: Sequence[socket.socket] = ()
) -> AsyncIterator[Context]:
    """The Context, as soon as the store can be opened; until then the sockets' requests get 503.

    A signal meanwhile ends the process as it is: nothing is held yet.
    """
    async with AsyncExitStack() as stack:
        try:
            ctx = await stack.enter_async_context(open_context(config, app))
        except StoreUnavailable as error:
            throttle = LogThrottle()
            _log(throttle, error)
            async with answering_503(sockets, config.http, error):
                ctx = await _reopened(stack, config, app, notifier, error, throttle)
            log.warning("the store is open", extra=fields(events.STORE_HEALED))
        yield ctx


def _log(throttle: LogThrottle, error: StoreUnavailable) -> None:
    if throttle.is_due(str(error)):
        event = events.DISK_FULL if isinstance(error, StoreFull) else events.STORE_FAILED
        log.error("the store cannot be opened: %s", with_hint(error), extra=fields(event))


async def _reopened(
    stack: AsyncExitStack,
    config: Config,
    app: App,
    notifier: Notifier,
    error: StoreUnavailable,
    throttle: LogThrottle,
) -> Context:
    while True:
        notifier.extend_timeout(_EXTEND_S, f"waiting for the store ({error})")
        notifier.watchdog()  # it runs already where the worker started anew at a reload
        await asyncio.sleep(_RETRY_S)
        try:
            return await stack.enter_async_context(open_context(config, app))
        except StoreUnavailable as again:
            error = again
            _log(throttle, error)
