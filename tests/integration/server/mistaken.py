"""An application with the mistakes that its developer makes in the first hour."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from cordata import App
from cordata.context import BackfillContext, Context, Event, EventContext
from cordata.store import Tx

SQL = "tests.contract.store.sql"
#: What must not be found in the log.
GUEST = "eva.moser@example.com"

app = App("mistaken")
app.queries(SQL)
app.migrations(SQL)


async def table(tx: Tx) -> None:
    await tx.execute("lost.add", id=GUEST)


async def statement(tx: Tx) -> None:
    await tx.execute("acount.add", id=GUEST, balance=0)


async def parameter(tx: Tx) -> None:
    await tx.execute("account.add", id=GUEST, balanse=0)


async def foreign(tx: Tx) -> None:
    await tx.execute("account.add", id=GUEST, balance=0)
    await asyncio.sleep(0.01)


MISTAKES = {unit.__name__: unit for unit in (table, statement, parameter, foreign)}


async def block() -> None:
    """Over 100 ms of this thread's processor time."""
    until = time.thread_time() + 0.15
    while time.thread_time() < until:
        pass


async def serve(scope: dict[str, Any], receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        raise NotImplementedError
    ctx: Context = scope["state"]["cordata"]
    _, where, kind = scope["path"].split("/")
    if where == "block":
        await block()
    elif where == "request":
        await ctx.run(MISTAKES[kind])
    else:
        await ctx.run(lambda tx: tx.publish(where, {"kind": kind}))
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"{}"})


app.mount("", serve)


@app.on("mistake.made", retries=0)
async def make_mistake(event: Event, ctx: EventContext) -> None:
    await ctx.run(MISTAKES[event.payload["kind"]])


@app.on("await.forgotten", retries=1)
async def forget(event: Event, ctx: EventContext) -> None:
    ctx.run(table)  # type: ignore[unused-coroutine]


@app.on("loop.blocked")
async def hog(event: Event, ctx: EventContext) -> None:
    await asyncio.sleep(0)
    await block()


@app.every(seconds=60)
async def look(ctx: Context) -> None:
    """A task of the primary."""
    await ctx.run(parameter)


@app.backfill("hashes")
async def fill(ctx: BackfillContext, cursor: str | None) -> str | None:
    """Likewise."""
    await ctx.run(table)
    return None
