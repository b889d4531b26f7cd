"""An application with HTTP, events and a command, whose children may take long to start."""

from __future__ import annotations

import json
from typing import Any

from cordata import App, Context, Event, EventContext

app = App("pooling")
app.command("hurry", at="tests.integration.server.pooled:hurry")
app.child_init(at="tests.integration.server.pooled:start")
_handled: list[int] = []


@app.on("work")
async def work(event: Event, ctx: EventContext) -> None:
    """Event 2 is done by the pool."""
    number = event.payload["number"]
    if number == 2:
        assert await ctx.pool.execute("hurry", timeout=30.0, idempotent=True) == "done"
    _handled.append(number)


async def serve(scope: Any, receive: Any, send: Any) -> None:
    """POST /publish/N publishes; GET /handled tells what was handled here."""
    if scope["type"] != "http":
        return
    found: Any = _handled
    if scope["method"] == "POST":
        ctx: Context = scope["state"]["cordata"]
        found = int(scope["path"].rpartition("/")[2])
        await ctx.run(lambda tx: tx.publish("work", {"number": found}))
    body = json.dumps(found).encode()
    heads = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": heads})
    await send({"type": "http.response.body", "body": body})


app.mount("", serve)
