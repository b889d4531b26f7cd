"""Requests to the mounted applications without an HTTP server; the first request starts them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from cordata.http import compose
from cordata.http.asgi import DISCONNECT, VERSION, Lifespan, Message, Receive, Scope, Send
from cordata.registry import Mount


class Mounted:
    """The mounts of a worker, without its HTTP server."""

    def __init__(self, mounts: Sequence[Mount], state: dict[str, Any]) -> None:
        self._app = compose({mount.prefix: mount.app for mount in mounts})
        self._state = state
        self._lifespan = Lifespan(self._app, state)
        self._wanted = asyncio.Event()
        self._starting = asyncio.Lock()
        self._started = False

    async def live(self) -> None:
        """Run the ASGI lifespan; a background task during the whole test."""
        await self._wanted.wait()
        await self._lifespan.run()

    async def request(
        self, method: str, target: str, *, headers: Mapping[str, str], body: bytes
    ) -> Response:
        """One request. Raises: LifespanFailed; what the application raised, even after it
        answered.
        """
        await self._start()
        exchange = _Exchange(body)
        scope = _scope(method, target, headers, len(body), self._state)
        await self._app(scope, exchange.receive, exchange.send)
        return exchange.response()

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The mounts as one ASGI application; the first request starts them."""
        await self._start()
        scope["state"] = self._state | dict(scope.get("state", {}))
        await self._app(scope, receive, send)

    async def close(self) -> None:
        """Shut the mounts down if they were started. Raises: LifespanFailed."""
        if self._started:
            self._started = False
            await self._lifespan.shutdown()

    async def _start(self) -> None:
        async with self._starting:
            if not self._wanted.is_set():
                self._wanted.set()
                await self._lifespan.startup()
                self._started = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """The response of the application."""

    status: int
    #: By name in lower case; if a name occurs several times, the last value.
    headers: Mapping[str, str]
    body: bytes = field(repr=False)

    @property
    def text(self) -> str:
        """The body as UTF-8."""
        return self.body.decode()

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


class _Exchange:
    """One request, and the ASGI messages of its response."""

    def __init__(self, body: bytes) -> None:
        self._messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        self._ended = asyncio.Event()
        self._sent: list[Message] = []

    async def receive(self) -> Message:
        if self._messages:
            return self._messages.pop()
        await self._ended.wait()
        return {"type": DISCONNECT}

    async def send(self, message: Message) -> None:
        self._sent.append(message)
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self._ended.set()

    def response(self) -> Response:
        if not self._ended.is_set():
            raise RuntimeError("the application returned before its response was complete")
        head = self._sent[0]
        lines = [
            (name.decode().lower(), value.decode("latin-1"))
            for name, value in head.get("headers", ())
        ]
        body = b"".join(message.get("body", b"") for message in self._sent[1:])
        return Response(status=head["status"], headers=dict(lines), body=body)


def _scope(
    method: str, target: str, headers: Mapping[str, str], length: int, state: Mapping[str, Any]
) -> Scope:
    """The ASGI scope, with the fields that the HTTP server sets."""
    path, _, query = target.partition("?")
    lines = {"host": "testserver", **({"content-length": str(length)} if length else {})}
    lines |= {name.lower(): value for name, value in headers.items()}
    return {
        "type": "http",
        "asgi": VERSION,
        "http_version": "1.1",
        "method": method.upper(),
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode("ascii"),
        "query_string": query.encode("ascii"),
        "root_path": "",
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in lines.items()],
        "client": ("127.0.0.1", 50000),
        "server": ("testserver", 80),
        "state": dict(state),
    }
