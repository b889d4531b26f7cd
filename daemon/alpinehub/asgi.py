"""The HTTP side of the hub's endpoints: requests, bounded bodies, replies; plain ASGI.

A framework is not needed for so few paths, and its request and response objects cost more than all
the validation of a guest request.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping
from contextlib import aclosing
from typing import Any, Literal

from msgspec import Struct

from alpinehub.memory_budget import Allocation
from cordata import Context

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

BodyFault = Literal["disconnected", "too_large", "busy"]


class BodyRefused(Exception):
    """The body did not arrive whole, is too large, or the budget has no memory for it now."""

    def __init__(self, fault: BodyFault) -> None:
        super().__init__(fault)
        self.fault: BodyFault = fault


class Request:
    """One request: its Context, client and headers; the body is read on demand."""

    __slots__ = ("_receive", "_scope", "client", "ctx", "headers")

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._scope = scope
        self._receive = receive
        self.ctx: Context = scope["state"]["cordata"]
        address = scope.get("client")
        #: The address of the client, as [http] trusted_proxies report it; None on a unix socket.
        self.client: str | None = address[0] if address else None
        #: By name in lower case; the first value of a repeated header.
        self.headers: dict[bytes, bytes] = dict(reversed(scope["headers"]))

    def header(self, name: bytes) -> str:
        """The text of a header; "" if there is none."""
        return self.headers.get(name, b"").decode("latin-1")

    def set_reason(self, reason: str) -> None:
        """Set the reason of an error for the server's log line of this request."""
        self._scope["state"]["reason"] = reason

    async def read_body(self, allocation: Allocation, most: int) -> bytes:
        """The whole body. Raises: BodyRefused."""
        # A list of its pieces may take 40 times as much, if these are single bytes.
        body = bytearray()
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise BodyRefused("disconnected")
            piece: bytes = message.get("body", b"")
            size = len(body) + len(piece)
            if size > most:
                raise BodyRefused("too_large")
            if not allocation.grow_to(size):
                raise BodyRefused("busy")
            is_last = not message.get("more_body", False)
            if is_last and not body:
                return piece
            body += piece
            if is_last:
                return bytes(body)


class Reply(Struct, frozen=True):
    """An answer: JSON unless another content type is given."""

    status: int
    #: In parts, it is sent while it is made. An error in the middle closes the connection, so that
    #: the client notices that the answer is incomplete.
    body: bytes | AsyncGenerator[bytes, None] = b""
    content_type: bytes = b"application/json"
    headers: tuple[tuple[bytes, bytes], ...] = ()


def path_below(scope: Scope) -> str:
    """The path of a request without that of the mount."""
    path: str = scope["path"]
    return path[len(scope.get("root_path", "")) :]


async def respond(send: Send, reply: Reply) -> None:
    """Send a response."""
    headers = [(b"content-type", reply.content_type), *reply.headers]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    if isinstance(reply.body, bytes):
        await send({"type": "http.response.body", "body": reply.body})
        return
    async with aclosing(reply.body) as parts:
        async for part in parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
