"""The health checks below /api, and the AlpineBits address.

The modules of AlpineBits, and Starlette, are imported at its first request, so that workers without
AlpineBits clients save the memory.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache
from typing import TYPE_CHECKING

from alpinehub.health import health, ready
from alpinehub.webhooks.endpoint import (
    HttpError,
    Receive,
    Reply,
    Scope,
    Send,
    respond,
    respond_error,
)
from cordata import Context

if TYPE_CHECKING:
    from starlette.applications import Starlette

_CHECKS: dict[str, Callable[[Context], Awaitable[Reply]]] = {"/health": health, "/ready": ready}
_NOT_FOUND = HttpError(404, "not_found", "There is nothing at this path.")
_NOT_ALLOWED = HttpError(
    405, "method_not_allowed", "Send GET or HEAD.", headers=((b"allow", b"GET, HEAD"),)
)


async def api(scope: Scope, receive: Receive, send: Send) -> None:
    """The ASGI application below /api."""
    if scope["type"] != "http":
        return
    check = _CHECKS.get(scope["path"][len(scope.get("root_path", "")) :])
    if check is None:
        await respond_error(scope, send, _NOT_FOUND)
    elif scope["method"] not in ("GET", "HEAD"):
        await respond_error(scope, send, _NOT_ALLOWED)
    else:
        await respond(send, await check(scope["state"]["cordata"]))


async def alpinebits(scope: Scope, receive: Receive, send: Send) -> None:
    """The ASGI application of the AlpineBits address."""
    if scope["type"] == "http":
        await _framework()({**scope, "root_path": ""}, receive, send)


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
