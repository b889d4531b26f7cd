"""The hub with one mistake: between a client and it, requests or responses are changed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.integration.alpinebits_client.peers import PATH
from tests.integration.http.live import live
from tests.integration.hub.material import Hub

from alpinehub.app import app
from cordata.http import compose


@dataclass
class Said:
    """A request on its way in, or a response on its way out."""

    headers: dict[str, str]
    body: bytes
    status: int = 200
    #: Of the request, also when the response is changed.
    action: str = ""
    asked: bytes = b""
    method: str = "POST"
    notes: dict[str, Any] = field(default_factory=dict)

    def take(self, status: int, body: bytes, kind: str = "text/plain") -> None:
        """Become this response."""
        self.status, self.body, self.headers = status, body, {"content-type": kind}


Change = Callable[[Said], None]


@asynccontextmanager
async def faulty(
    hub: Hub, *, request: Change | None = None, response: Change | None = None
) -> AsyncIterator[str]:
    """The URL of the hub's AlpineBits, behind the mistake."""
    inner = compose({mount.prefix: mount.app for mount in app.mounts})

    async def between(scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        asked = Said(
            headers={name.decode(): value.decode("latin-1") for name, value in scope["headers"]},
            body=body,
            method=scope["method"],
        )
        action = body.partition(b'name="action"\r\n\r\n')[2].partition(b"\r\n")[0].decode("latin-1")
        if request is not None:
            request(asked)
        answer = await _ask(inner, scope, asked)
        answer.action, answer.asked, answer.method = action, body, asked.method
        answer.notes = {"request": asked.headers}
        if response is not None:
            response(answer)
        headers = {**answer.headers, "content-length": str(len(answer.body))}
        heads = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": answer.status, "headers": heads})
        await send({"type": "http.response.body", "body": answer.body})

    async with live(between, state={"cordata": hub.ctx}) as server:
        yield f"http://127.0.0.1:{server.port}{PATH}"


async def _ask(inner: Any, scope: Any, asked: Said) -> Said:
    """What the hub itself answers."""
    heads = [(name.encode(), value.encode("latin-1")) for name, value in asked.headers.items()]
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": asked.body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await inner({**scope, "headers": heads, "method": asked.method}, receive, send)
    headers = {name.decode(): value.decode("latin-1") for name, value in sent[0]["headers"]}
    body = b"".join(one.get("body", b"") for one in sent[1:])
    return Said(headers=headers, body=body, status=sent[0]["status"])
