"""Answers GET /metrics with the metrics of all processes of this host."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cordata import clock
from cordata.disk import space_of
from cordata.errors import CordataError
from cordata.http.asgi import Message, Scope, send_error
from cordata.metrics.backlog import Backlog, read_backlog
from cordata.metrics.file import read_all, remove_old
from cordata.metrics.page import Page
from cordata.store import Store

#: Longest wait for the store; less than the ten seconds that Prometheus waits.
_STORE_S = 5.0
#: What waits in the store is asked for again when the last answer is older.
_KEPT_S = 5.0


class MetricsPage:
    """The ASGI application at `[metrics] listen`."""

    def __init__(
        self, store: Store, directory: Path, *, state: Path, build: Mapping[str, str]
    ) -> None:
        """`directory`: with the files of the processes. `state`: the directory whose disk is
        watched. `build`: versions, and the application.
        """
        self._store = store
        self._directory = directory
        self._state = state
        self._build = build
        self._backlog: Backlog | None = None
        self._asked_at = float("-inf")
        self._asking = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            raise ValueError(scope["type"])
        if scope["path"] != "/metrics":
            await send_error(send, 404, "not_found", "the metrics are at /metrics")
            return
        if scope["method"] not in ("GET", "HEAD"):
            allow = (b"allow", b"GET, HEAD")
            await send_error(send, 405, "method_not_allowed", "use GET", allow)
            return
        accept = b",".join(value for name, value in scope["headers"] if name == b"accept")
        backlog = await self._ask()
        content_type, body = await asyncio.to_thread(
            self._render, accept.decode("latin-1"), backlog
        )
        start: Message = {
            "type": "http.response.start",
            "status": 200,
            "headers": [
                (b"content-type", content_type.encode()),
                (b"content-length", b"%d" % len(body)),
            ],
        }
        await send(start)
        await send({"type": "http.response.body", "body": body})

    def _render(self, accept: str, backlog: Backlog | None) -> tuple[str, bytes]:
        remove_old(self._directory)
        page = Page(
            build=self._build,
            readings=read_all(self._directory),
            backlog=backlog,
            disk=space_of(self._state),
        )
        return page.render(accept)

    async def _ask(self) -> Backlog | None:
        """What waits in the store, as of the last seconds; None: it does not answer."""
        async with self._asking:
            if clock.monotonic() - self._asked_at < _KEPT_S:
                return self._backlog
            try:
                async with asyncio.timeout(_STORE_S):
                    self._backlog = await self._store.read(read_backlog)
            except (CordataError, TimeoutError):  # it may have no tables yet
                self._backlog = None
            self._asked_at = clock.monotonic()
            return self._backlog
