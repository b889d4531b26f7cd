"""Everything below /api: health checks are answered here; the modules of AlpineBits, and Starlette,
are imported at its first request, so that workers without AlpineBits clients save the memory.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache
from typing import TYPE_CHECKING

from alpinehub.health import Sign, health, ready
from alpinehub.webhooks.endpoint import Receive, Scope, Send
from cordata import Context

if TYPE_CHECKING:
    from starlette.applications import Starlette

_SIGNS: dict[str, Callable[[Context], Awaitable[Sign]]] = {"/health": health, "/ready": ready}


async def api(scope: Scope, receive: Receive, send: Send) -> None:
    """The ASGI application."""
    if scope["type"] != "http":
        return
    sign = _SIGNS.get(scope["path"][len(scope.get("root_path", "")) :])
    if sign is None:
        await _framework()(scope, receive, send)
    elif scope["method"] in ("GET", "HEAD"):
        await _answer(send, await sign(scope["state"]["cordata"]))
    else:
        refused = b'{"error":"method_not_allowed"}'
        await _answer(send, Sign(405, refused, ((b"allow", b"GET, HEAD"),)))


async def alpinebits(scope: Scope, receive: Receive, send: Send) -> None:
    """The ASGI application of the AlpineBits address."""
    if scope["type"] == "http":
        await _framework()({**scope, "root_path": ""}, receive, send)


async def _answer(send: Send, sign: Sign) -> None:
    length = (b"content-length", b"%d" % len(sign.body))
    headers = [(b"content-type", b"application/json"), length, *sign.headers]
    await send({"type": "http.response.start", "status": sign.status, "headers": headers})
    await send({"type": "http.response.body", "body": sign.body})


@cache
def _framework() -> Starlette:
    from starlette.applications import Starlette
    from starlette.routing import Route

    from alpinehub.alpinebits.endpoint import alpinebits as endpoint
    from alpinehub.alpinebits.endpoint import not_allowed

    return Starlette(
        routes=[Route("/api/alpinebits", endpoint, methods=["POST"])],
        exception_handlers={405: not_allowed},
    )
