"""An application whose every part is counted: requests, events, calls, jobs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from cordata import (
    App,
    Context,
    Event,
    EventContext,
    EventStore,
    NewEvent,
    StoredEvent,
    SubscriptionContext,
)
from cordata.errors import CommandFailed, PermanentError

app = App("counted")
app.command("double", at="tests.integration.metrics.commands:double")


@app.on("thing.done", retries=1)
async def done(event: Event, ctx: EventContext) -> None:
    """Handle it."""


@app.on("thing.refused", retries=1)
async def refused(event: Event, ctx: EventContext) -> None:
    """Never handle it."""
    raise PermanentError("never")


@app.subscribe("thing", retries=1)
async def followed(event: StoredEvent, ctx: SubscriptionContext) -> None:
    """Fail at the first attempt."""
    if event.attempt == 1:
        raise RuntimeError("as asked")


async def _due(ctx: Context, now: datetime) -> list[tuple[str, str]]:
    return [("a", "2026-01-01"), ("b", "2026-01-01")]


@app.job("nightly", due=_due)
async def nightly(ctx: Context, scope: str, period: str) -> None:
    """Fail for one scope."""
    if scope == "b":
        raise PermanentError("never")


async def serve(scope: Any, receive: Any, send: Any) -> None:
    """/publish/TYPE, /append, /double/N, /double, /fail; all else is fine."""
    if scope["type"] != "http":
        return
    ctx: Context = scope["state"]["cordata"]
    first, _, rest = scope["path"].strip("/").partition("/")
    if first == "fail":
        raise RuntimeError("as asked")
    if first == "append":
        event = NewEvent(type="happened", payload={})
        await ctx.run(lambda tx: EventStore(tx).append("thing-1", [event], expected=None))
    if first == "publish":
        await ctx.run(lambda tx: tx.publish(rest, {"n": 1}))
    if first == "double":
        try:
            await ctx.pool.execute("double", int(rest) if rest else None, timeout=60.0)
        except CommandFailed:
            pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})


app.mount("", serve)
