"""GET /api/health and /api/ready: whether the process lives, and whether it can do its work."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cordata import Context, CordataError

_ALIVE = b'{"status":"alive"}'


async def health(request: Request) -> Response:
    """200 as long as the loop turns; it asks nothing else."""
    return Response(_ALIVE, media_type="application/json")


async def ready(request: Request) -> Response:
    """200 when the store answers and has every migration of this code; else 503 with the reason."""
    ctx: Context = request.state.cordata
    try:
        reason = "" if await ctx.schema_current() else "the schema is older than this code"
    except CordataError as error:
        reason = f"{error.code}: {error}"
    if not reason:
        return JSONResponse({"status": "ready"})
    body = {"status": "not ready", "reason": reason}
    return JSONResponse(body, status_code=503, headers={"retry-after": "5"})
