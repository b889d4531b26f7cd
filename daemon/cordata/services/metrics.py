"""Serves the metrics of all processes of this host: each worker does, so one that lives is enough.

TCP: all workers listen on the same address (SO_REUSEPORT), and the kernel chooses one for each
connection. A unix socket has one owner, the worker that has locked a file beside the counters; when
it ends, another one takes its place within seconds.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from cordata import clock
from cordata.config.sections import HttpConfig
from cordata.errors import CordataError
from cordata.heartbeat import Heartbeat
from cordata.http import HttpServer
from cordata.http.asgi import Message, Scope, send_error
from cordata.log import LogThrottle, logger
from cordata.metrics.backlog import Backlog, read_backlog
from cordata.metrics.file import read_all, remove_old
from cordata.metrics.page import Page
from cordata.services.loop import pause
from cordata.store import Store

log = logger("cordata.metrics")

#: Between attempts to listen.
_RETRY_S = 2.0
#: Longest wait for the store; less than the ten seconds that Prometheus waits.
_STORE_S = 5.0
#: What waits in the store is asked for again when the last answer is older.
_KEPT_S = 5.0
#: Scrapers are few, and on this host.
_LIMITS = HttpConfig(max_connections=64, max_body_bytes=1024, drain_s=0.0)


class MetricsService:
    """Answers GET /metrics at `[metrics] listen`."""

    name = "metrics"

    def __init__(
        self, store: Store, directory: Path, listen: str, *, build: Mapping[str, str]
    ) -> None:
        """`directory`: with the files of the processes. `build`: versions, and the application."""
        self.heartbeat = Heartbeat()
        self._store = store
        self._directory = directory
        self._listen = listen
        self._build = build
        self._backlog: Backlog | None = None
        self._asked_at = float("-inf")
        self._asking = asyncio.Lock()
        self._log_throttle = LogThrottle()

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop`; while the address cannot be had, try again."""
        while not stop.is_set():
            self.heartbeat.touch()
            try:
                with listening(self._listen, self._directory) as sock:
                    if sock is not None:
                        server = HttpServer(self.answer, [sock], _LIMITS)
                        await server.run(stop, tick=self.heartbeat.touch)
            except OSError as error:
                text = f"{self._listen}: {error.strerror}"
                if self._log_throttle.is_due(text):
                    log.error("metrics cannot be served at %s", text)
            await pause(stop, _RETRY_S)

    async def answer(self, scope: Scope, receive: Any, send: Any) -> None:
        """The ASGI application."""
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
        page = Page(build=self._build, readings=read_all(self._directory), backlog=backlog)
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


@contextmanager
def listening(listen: str, directory: Path) -> Iterator[socket.socket | None]:
    """A listening socket; None: another worker has the path. Raises: OSError."""
    if listen.startswith("/"):
        with _locked(directory / "lock") as owned:
            if not owned:
                yield None
                return
            if Path(listen).is_socket():
                os.unlink(listen)  # of an owner that was killed
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
                sock.bind(listen)
                try:
                    # Its group is the process's, or that of a set-group-ID directory.
                    os.chmod(listen, 0o660)
                    sock.listen(_LIMITS.max_connections)
                    yield sock
                finally:
                    with suppress(FileNotFoundError):
                        os.unlink(listen)
        return
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind((host, int(port)))
        sock.listen(_LIMITS.max_connections)
        yield sock


@contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Whether this process got the lock of a file. The kernel frees it when the process ends."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(file)
