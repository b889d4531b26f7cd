"""Answers 503 while a problem keeps a worker from serving, and retries to open the store.

systemd, or `cordata server`, listens on the sockets before the worker runs: without an answer,
clients would wait as long as the problem lasts (a full disk, a missing mount, a damaged file).
When it is solved, the same process serves.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

from cordata import events
from cordata.app import App
from cordata.config import Config
from cordata.config.sections import HttpConfig
from cordata.context import Context
from cordata.context_factory import open_context
from cordata.errors import ConfigError, StoreFull, StoreUnavailable
from cordata.log import LogThrottle, fields, logger, with_hint
from cordata.metrics.process import ProcessMetrics
from cordata.services.loop import pause
from cordata.systemd import Notifier

log = logger("cordata.store")

#: Retry-After of a worker whose configuration is invalid: a person has to change it.
_CONFIG_RETRY_AFTER_S = 30
#: During a shorter problem clients wait and get no 503.
_GRACE_S = 1.0
_CHECK_EVERY_S = 0.1
#: Pause between attempts to open the store; EXTEND_TIMEOUT_USEC= is sent at each.
_RETRY_S = 1.0

#: Returns the problem that keeps a worker from serving, or None.
Problem = Callable[[], StoreUnavailable | ConfigError | None]


@asynccontextmanager
async def answering_503(
    sockets: Sequence[socket.socket],
    config: HttpConfig,
    error: StoreUnavailable | ConfigError,
    metrics: ProcessMetrics | None = None,
) -> AsyncIterator[None]:
    """Within the block, every request on the sockets gets 503 with Retry-After.

    `metrics`: where the requests are counted.
    """
    if not sockets:
        yield
        return
    from cordata.http import HttpServer
    from cordata.http.asgi import send_error

    if isinstance(error, StoreUnavailable):
        code, retry_after_s = "store_unavailable", max(1, round(error.retry_after_s))
    else:
        code, retry_after_s = "config_invalid", _CONFIG_RETRY_AFTER_S
    retry_after = (b"retry-after", b"%d" % retry_after_s)

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            raise ValueError(scope["type"])
        await send_error(send, 503, code, "the server cannot serve requests yet", retry_after)

    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        # No path is logged, since only the application declares which ones contain secrets.
        counted = metrics.http() if metrics is not None else None
        server = HttpServer(answer, sockets, config, logged_segments={"": 0}, metrics=counted)
        group.create_task(server.run(stop))
        try:
            yield
        finally:
            stop.set()


class UnavailableService:
    """Answers 503 until the HTTP service can serve; in the lowest layer, which starts first.

    The event loop allows one reader per socket, so the HTTP service awaits `release` before it
    accepts.
    """

    name = "unavailable"

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        config: HttpConfig,
        problems: Sequence[Problem],
        metrics: ProcessMetrics | None = None,
    ) -> None:
        """`problems`: one function for each service that may delay the start. `metrics`: where the
        requests are counted.
        """
        self._sockets = sockets
        self._config = config
        self._problems = problems
        self._metrics = metrics
        self._over = asyncio.Event()
        #: Set while this service accepts no connections.
        self._released = asyncio.Event()
        self._released.set()

    async def release(self) -> None:
        """Stop permanently. Returns when this service accepts no more connections."""
        self._over.set()
        await self._released.wait()

    async def run(self, stop: asyncio.Event) -> None:
        """Answer 503 during a problem, until `release`; then wait for the stop."""
        loop = asyncio.get_running_loop()
        since: float | None = None
        while not self._is_over(stop):
            error = self._problem()
            since = None if error is None else since or loop.time()
            if error is not None and since is not None and loop.time() - since >= _GRACE_S:
                await self._answer(error, stop)
            await pause(stop, _CHECK_EVERY_S)
        await stop.wait()

    async def _answer(self, error: StoreUnavailable | ConfigError, stop: asyncio.Event) -> None:
        self._released.clear()
        try:
            async with answering_503(self._sockets, self._config, error, self._metrics):
                while self._problem() and not self._is_over(stop):
                    await pause(stop, _CHECK_EVERY_S)
        finally:
            self._released.set()

    def _is_over(self, stop: asyncio.Event) -> bool:
        return stop.is_set() or self._over.is_set()

    def _problem(self) -> StoreUnavailable | ConfigError | None:
        return next((error for problem in self._problems if (error := problem())), None)


@asynccontextmanager
async def open_context_with_retry(
    config: Config,
    app: App,
    notifier: Notifier,
    sockets: Sequence[socket.socket] = (),
    metrics: ProcessMetrics | None = None,
) -> AsyncIterator[Context]:
    """The Context, as soon as the store can be opened; until then requests get 503.

    A signal before that ends the process at once, which has no work in progress yet.
    """
    async with AsyncExitStack() as stack:

        def opened() -> AbstractAsyncContextManager[Context]:
            return open_context(config, app, metrics=metrics)

        try:
            ctx = await stack.enter_async_context(opened())
        except StoreUnavailable as error:
            async with answering_503(sockets, config.http, error, metrics):
                ctx = await _reopened(stack, opened, notifier, error)
            log.warning("the store is open", extra=fields(events.STORE_HEALED))
        yield ctx


async def _reopened(
    stack: AsyncExitStack,
    opened: Callable[[], AbstractAsyncContextManager[Context]],
    notifier: Notifier,
    error: StoreUnavailable,
) -> Context:
    throttle = LogThrottle()
    while True:
        if throttle.is_due(str(error)):
            event = events.DISK_FULL if isinstance(error, StoreFull) else events.STORE_FAILED
            log.error("the store cannot be opened: %s", with_hint(error), extra=fields(event))
        notifier.extend_timeout(f"waiting for the store ({error})")
        notifier.watchdog()  # after reexec() the timer of the watchdog still runs
        await asyncio.sleep(_RETRY_S)
        try:
            return await stack.enter_async_context(opened())
        except StoreUnavailable as again:
            error = again
