"""An application whose effects can be counted: each request publishes an event, each event adds a
row; while the file HOLD exists, its handler waits.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from pathlib import Path
from typing import Any

from cordata import App, Event, EventContext, Tx

HOLD = "COUNTER_HOLD"
SQL = "tests.integration.backup.sql"

app = App("counter")
app.migrations(SQL)
app.queries(SQL)
_numbers = itertools.count(1)


async def serve(scope: dict[str, Any], receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        while (message := await receive())["type"] != "lifespan.shutdown":
            await send({"type": message["type"] + ".complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    number = next(_numbers)
    event_id = await scope["state"]["cordata"].run(
        lambda tx: tx.publish("counted", {"number": number})
    )
    body = json.dumps({"event": event_id}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


app.mount("", serve)


@app.on("counted")
async def add(event: Event, ctx: EventContext) -> None:
    hold = os.environ.get(HOLD)
    while hold and Path(hold).exists():  # noqa: ASYNC110 - set by another process
        await asyncio.sleep(0.02)

    async def unit(tx: Tx) -> None:
        await tx.execute("effect.add", event_id=event.id, number=event.payload["number"])

    await ctx.run(unit)
