"""The health checks /api/health and /api/ready, and the AlpineBits endpoint.

The modules of AlpineBits are imported at its first request, so that workers without AlpineBits
clients save the memory.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import monotonic
from weakref import WeakKeyDictionary

import msgspec

from alpinehub.asgi import Receive, Reply, Scope, Send, path_below, respond
from alpinehub.sources import describe_closed, sealed_elsewhere
from alpinehub.webhooks.endpoint import WebhookError, respond_error
from cordata import Context, CordataError

_ALIVE = Reply(200, b'{"status":"alive"}')
_READY = Reply(200, b'{"status":"ready"}')


async def health(ctx: Context) -> Reply:
    """200 as long as the event loop runs; nothing else is checked."""
    return _ALIVE


#: Vault -> monotonic time of the last check in which it could unseal all secrets of the sources.
_opened: WeakKeyDictionary[object, float] = WeakKeyDictionary()
_LOOK_AGAIN_S = 60.0


async def ready(ctx: Context) -> Reply:
    """200 if the store answers, takes writes and has every migration of this code; else 503 with
    the reason.

    Without writes, as on a full disk, only polls that bring nothing new can be answered. If no
    source's secret can be unsealed, as after a restore without the master key, each webhook would
    get a 401: 503, too. If only some cannot, 200 with a warning that names them: one source must
    not take a host out of service.
    """
    try:
        await ctx.check_ready()
        closed, is_all = await _closed(ctx)
    except CordataError as error:
        return _not_ready(f"{error.code}: {error}")
    if not closed:
        return _READY
    if is_all:
        return _not_ready(closed)
    return Reply(200, msgspec.json.encode({"status": "ready", "warning": closed}))


def _not_ready(reason: str) -> Reply:
    body = msgspec.json.encode({"status": "not ready", "reason": reason})
    return Reply(503, body, headers=((b"retry-after", b"5"),))


async def _closed(ctx: Context) -> tuple[str, bool]:
    """The secrets that cannot be unsealed ("" for none), and whether these are all secrets.

    Success is cached for a minute, because the check reads all secrets.
    """
    now = monotonic()
    if now - _opened.get(ctx.vault, float("-inf")) < _LOOK_AGAIN_S:
        return "", False
    closed = await sealed_elsewhere(ctx)
    if closed.names:
        return describe_closed(closed.names), closed.is_all
    _opened[ctx.vault] = now
    return "", False


_CHECKS: dict[str, Callable[[Context], Awaitable[Reply]]] = {"/health": health, "/ready": ready}
_NOT_FOUND = WebhookError(404, "not_found", "There is nothing at this path.")
_NOT_ALLOWED = WebhookError(
    405, "method_not_allowed", "Send GET or HEAD.", headers=((b"allow", b"GET, HEAD"),)
)


async def api(scope: Scope, receive: Receive, send: Send) -> None:
    """The ASGI application below /api."""
    if scope["type"] != "http":
        return
    check = _CHECKS.get(path_below(scope))
    if check is None:
        await respond_error(scope, send, _NOT_FOUND)
    elif scope["method"] not in ("GET", "HEAD"):
        await respond_error(scope, send, _NOT_ALLOWED)
    else:
        await respond(send, await check(scope["state"]["cordata"]))


async def alpinebits(scope: Scope, receive: Receive, send: Send) -> None:
    """The ASGI application of the AlpineBits endpoint."""
    if scope["type"] == "http":
        from alpinehub.alpinebits.endpoint import alpinebits as endpoint

        await endpoint(scope, receive, send)
