"""GET /api/health and /api/ready: whether the process lives, and whether it can do its work."""

from __future__ import annotations

from time import monotonic
from typing import NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from alpinehub.sources import describe_closed, sealed_elsewhere
from cordata import Context, CordataError


class Sign(NamedTuple):
    """An answer: status, JSON, further headers."""

    status: int
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()


_ALIVE = Sign(200, b'{"status":"alive"}')
_READY = Sign(200, b'{"status":"ready"}')


async def health(ctx: Context) -> Sign:
    """200 as long as the loop turns; it asks nothing else."""
    return _ALIVE


#: When the secrets of the sources were last seen to open, by the vault that opened them.
_opened: WeakKeyDictionary[object, float] = WeakKeyDictionary()
_LOOK_AGAIN_S = 60.0


async def ready(ctx: Context) -> Sign:
    """200 when the store answers and has every migration of this code, and the secrets of the
    sources open, without which each webhook gets a 401; else 503 with the reason.
    """
    try:
        reason = "" if await ctx.schema_current() else "the schema is older than this code"
        reason = reason or await _closed(ctx)
    except CordataError as error:
        reason = f"{error.code}: {error}"
    if not reason:
        return _READY
    body = msgspec.json.encode({"status": "not ready", "reason": reason})
    return Sign(503, body, ((b"retry-after", b"5"),))


async def _closed(ctx: Context) -> str:
    """Which secrets do not open; that all do is asked once a minute, for it reads them all."""
    now = monotonic()
    if now - _opened.get(ctx.vault, float("-inf")) < _LOOK_AGAIN_S:
        return ""
    if closed := await sealed_elsewhere(ctx):
        return describe_closed(closed)
    _opened[ctx.vault] = now
    return ""
