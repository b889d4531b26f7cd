"""Serves an ASGI application for operators at a loopback address or a unix socket: each worker
does, so one that lives is enough.

TCP: all workers listen on the same address (SO_REUSEPORT), and the kernel chooses one for each
connection. A unix socket has one owner, the worker that has locked a file; when it ends, another
one takes its place within seconds.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from cordata.config.sections import HttpConfig
from cordata.heartbeat import Heartbeat
from cordata.http import HttpServer
from cordata.http.asgi import AsgiApp
from cordata.log import LogThrottle, logger
from cordata.services.loop import background, pause

log = logger("cordata.local")

#: Between attempts to listen.
_RETRY_S = 2.0
#: After the stop, clients may read for so long: the service is among the last to stop.
_CUT_OFF_S = 1.0
#: Operators and their programs are few.
_LIMITS = HttpConfig(max_connections=64, max_body_bytes=4096, drain_s=0.0)


class LocalHttpService:
    """Serves `app` at `listen`. At the event `scope["state"]["stop"]` streams have to end."""

    def __init__(
        self,
        name: str,
        app: AsgiApp,
        listen: str,
        *,
        lock: Path,
        trusted_proxies: tuple[str, ...] = (),
    ) -> None:
        """`lock`: the file that the owner of a unix socket locks."""
        self.name = name
        self.heartbeat = Heartbeat()
        self._app = app
        self._listen = listen
        self._lock = lock
        self._limits = replace(_LIMITS, trusted_proxies=trusted_proxies)
        self._log_throttle = LogThrottle()

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop`; while the address cannot be had, try again."""
        while not stop.is_set():
            self.heartbeat.touch()
            try:
                with _listening(self._listen, self._lock) as sock:
                    if sock is not None:
                        await self._serve(sock, stop)
            except OSError as error:
                text = f"{self._listen}: {error.strerror}"
                if self._log_throttle.is_due(text):
                    log.error("%s cannot be served at %s", self.name, text)
            await pause(stop, _RETRY_S)

    async def _serve(self, sock: socket.socket, stop: asyncio.Event) -> None:
        server = HttpServer(
            self._app, [sock], self._limits, {"stop": stop}, heartbeat=self.heartbeat
        )
        limit = asyncio.timeout(None)
        try:
            async with limit, background(_limit(limit, stop)):
                await server.run(stop)
        except TimeoutError:  # ETIMEDOUT is one, too
            if not limit.expired():
                raise


async def _limit(limit: asyncio.Timeout, stop: asyncio.Event) -> None:
    """Let what `limit` limits end soon after the stop."""
    await stop.wait()
    limit.reschedule(asyncio.get_running_loop().time() + _CUT_OFF_S)


@contextmanager
def _listening(listen: str, lock: Path) -> Iterator[socket.socket | None]:
    """A listening socket; None: another worker has the path. Raises: OSError."""
    if listen.startswith("/"):
        with _locked(lock) as owned:
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
