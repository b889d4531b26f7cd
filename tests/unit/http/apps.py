"""Applications of a few lines, the messages that they send, and requests to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cordata.http.asgi import AsgiApp, Receive, Scope, Send

GET = b"GET /x?q=1 HTTP/1.1\r\nHost: a\r\nX-Request-ID: r1\r\n\r\n"
POST = b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"


def start(status: int = 200, *headers: tuple[bytes, bytes]) -> dict[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


def body(data: bytes = b"", *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": more}


def sending(*messages: dict[str, Any], error: BaseException | None = None) -> AsgiApp:
    """An application that sends messages, then raises."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError
        for message in messages:
            await send(message)
        if error is not None:
            raise error

    return app


def http_only(handle: Callable[[Scope, Receive, Send], Any]) -> AsgiApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError
        await handle(scope, receive, send)

    return app
