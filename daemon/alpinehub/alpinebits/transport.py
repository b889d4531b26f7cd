"""What comes before an action: who asks, in which version, and the form; errors in plain text."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from alpinehub.alpinebits import bounds, form, transport_error
from alpinehub.alpinebits.call import THREAD_BYTES
from alpinehub.alpinebits.concurrency_limit import Turn
from alpinehub.alpinebits.markup import clean
from alpinehub.alpinebits.protocol import well_formed
from alpinehub.alpinebits.transport_error import TransportError
from alpinehub.login import TooManyLogins, authenticate, shown
from alpinehub.models import Account
from cordata import Context

T = TypeVar("T")

#: With every response: from now on the client may send its bodies packed.
HEADERS = {"X-AlpineBits-Server-Accept-Encoding": "gzip"}
_MAX_CLIENT_ID_CHARS = 64


async def log_in(ctx: Context, request: Request) -> Account:
    """Who asks. Raises: TransportError (401), TooManyLogins, StoreUnavailable."""
    credentials = _credentials(request.headers.get("authorization", ""))
    if credentials is None:
        raise TransportError(401, transport_error.BAD_CREDENTIALS)
    name, password = credentials
    address = request.client.host if request.client is not None else ""
    try:
        account = await authenticate(ctx, name, password, address=address)
    except TooManyLogins as error:
        request.state.reason = f"{error.text} (account {shown(name)})"
        raise
    if account is None:
        raise TransportError(401, transport_error.BAD_CREDENTIALS, note=f" (account {shown(name)})")
    return account


def _credentials(header: str) -> tuple[str, str] | None:
    """Account and password of a Basic Authorization header (RFC 7617), None when it is not one.

    UTF-8 is what we ask for; what is not UTF-8 is read as Latin-1, as old clients mean it.
    """
    scheme, _, token = header.strip().partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        decoded = base64.b64decode(token.strip(), validate=True)
    except (binascii.Error, ValueError):
        return None
    try:
        pair = decoded.decode("utf-8")
    except UnicodeDecodeError:
        pair = decoded.decode("latin-1")
    user, colon, password = pair.partition(":")
    return (user, password) if colon and user else None


def protocol_name(request: Request) -> str:
    """The version that the client speaks, known to us or not. Raises: TransportError (400)."""
    name = request.headers.get("x-alpinebits-clientprotocolversion", "").strip()
    if not name:
        raise TransportError(400, "the header X-AlpineBits-ClientProtocolVersion is missing")
    if not well_formed(name):
        raise TransportError(400, transport_error.BAD_VERSION)
    return name


def client_id(request: Request) -> str:
    """What the client calls itself; nobody has to."""
    said = clean(request.headers.get("x-alpinebits-clientid", "")).strip()
    return said[:_MAX_CLIENT_ID_CHARS]


async def read_form(request: Request, turn: Turn) -> form.Form:
    """The form in the body. Raises: TransportError (413, 415, 400, 503), ClientDisconnect."""
    received = bytearray()
    async with aclosing(request.stream()) as chunks:
        async for chunk in chunks:
            received += chunk
            if len(received) > bounds.MAX_BODY_BYTES:
                raise TransportError(413, "the body is too large")
            turn.grow(len(received))
    headers = request.headers
    body = form.unpack(bytes(received), headers.get("content-encoding", ""))
    turn.grow(max(len(received), len(body)))  # more, where it was packed
    return await _parse(body, lambda: form.parse_form(headers.get("content-type", ""), body))


async def _parse(data: bytes, read: Callable[[], T]) -> T:
    if len(data) > THREAD_BYTES:
        return await asyncio.to_thread(read)
    return read()


def refuse(request: Request, problem: TransportError) -> Response:
    """The response to what is not AlpineBits as it should be; why, is on the connection layer's
    line of the request.
    """
    request.state.reason = f"{problem.text}{problem.note}"
    ask = {"WWW-Authenticate": 'Basic realm="AlpineBits", charset="UTF-8"'}
    return plain(problem.status, problem.text, ask if problem.status == 401 else None)


class InParts(Response):
    """A document that is sent as it is made. What fails in the middle of it ends the connection:
    the client sees that it has half a document.
    """

    def __init__(
        self, parts: AsyncGenerator[bytes, None], *, media_type: str, headers: dict[str, str]
    ) -> None:
        self.status_code = 200
        self.background = None
        self.media_type = media_type
        self.init_headers(headers)
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        head = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        async with aclosing(self._parts) as parts:
            await send(head)
            async for part in parts:
                await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def plain(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    """An error as the protocol wants it: a line of text."""
    return Response(
        f"ERROR:{message}",
        status_code=status,
        media_type="text/plain; charset=utf-8",
        headers=HEADERS | (headers or {}),
    )
