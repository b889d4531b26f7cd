"""GET /api/health and /api/ready: whether the process lives, and whether it can do its work."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

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


async def ready(ctx: Context) -> Sign:
    """200 when the store answers and has every migration of this code; else 503 with the reason."""
    try:
        reason = "" if await ctx.schema_current() else "the schema is older than this code"
    except CordataError as error:
        reason = f"{error.code}: {error}"
    if not reason:
        return _READY
    body = msgspec.json.encode({"status": "not ready", "reason": reason})
    return Sign(503, body, ((b"retry-after", b"5"),))
