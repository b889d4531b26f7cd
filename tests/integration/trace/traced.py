"""An application that a request runs all the way through: event, handlers, pool, mail.

Each place appends what it knows of its trace to the file $SEEN.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from cordata import App, Context, Event, EventContext, Tx, current_trace, request_id

app = App("shop")


def note(place: str) -> None:
    trace = current_trace()
    seen: dict[str, Any] = {"place": place, "request_id": request_id.get()}
    if trace is not None:
        seen |= {"trace_id": trace.trace_id, "span_id": trace.span_id}
        seen |= {"parent_id": trace.parent_id, "sampled": trace.sampled}
    line = json.dumps(seen) + "\n"
    fd = os.open(os.environ["SEEN"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, line.encode())
    os.close(fd)


@app.command("render")
def render(guest: str) -> str:
    """Says something in the child."""
    note("child")
    print("rendered in the child")
    return guest


@app.on("order.made")
async def pack(event: Event, ctx: EventContext) -> None:
    """Calls the pool; its effect is another event, and a mail."""
    note("pack")
    await ctx.pool.execute("render", event.payload["guest"], timeout=60)

    async def unit(tx: Tx) -> None:
        await tx.publish("order.packed", {"order": event.id})
        await tx.send_mail(to=["eva@example.org"], subject="Eva Muster", text="packed")

    await ctx.run(unit)
    ctx.log.info("packed")


@app.on("order.packed", retries=3)
async def send(event: Event, ctx: EventContext) -> None:
    """Fails at first."""
    note(f"send {event.attempt}")
    if event.attempt == 1:
        raise ValueError("no stamp for Eva Muster")
    await ctx.run(lambda tx: tx.publish("order.sent", {"order": event.payload["order"]}))


@app.on("order.made", retries=0)
async def bill(event: Event, ctx: EventContext) -> None:
    """Is a dead letter."""
    note("bill")
    raise KeyError("Eva Muster")


async def orders(scope: Any, receive: Any, send: Any) -> None:
    """Each request makes an order."""
    assert scope["type"] == "http"  # there is nothing to start or stop
    note("request")
    ctx: Context = scope["state"]["cordata"]
    event_id = await ctx.run(lambda tx: tx.publish("order.made", {"guest": "Eva Muster"}))
    await send({"type": "http.response.start", "status": 201, "headers": []})
    await send({"type": "http.response.body", "body": event_id.encode()})


app.mount("/order", orders)


def seen(path: Path) -> list[dict[str, Any]]:
    """What was noted so far."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
