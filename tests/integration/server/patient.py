"""An application whose handlers take longer than a stop waits."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from cordata import App
from cordata.context import BackfillContext, Context, Event, EventContext
from cordata.eventstore import EventStore, NewEvent, StoredEvent
from cordata.store import Tx
from cordata.subscription import SubscriptionContext

app = App("patient")
_FLAG = Path(os.environ.get("PATIENT_FLAG", "/nonexistent"))


async def _wait(ctx: Context, name: str, attempt: int) -> None:
    """For ever in the first process, not at all once the flag is there."""
    if not _FLAG.exists():
        ctx.log.info("%s begins", name)
        await asyncio.sleep(3600)
    ctx.log.info("%s handles attempt %d", name, attempt)


async def hang(scope: Any, receive: Any, send: Any) -> None:
    """A request that is never answered."""
    assert scope["type"] == "http"
    scope["state"]["cordata"].log.info("a request hangs")
    await asyncio.sleep(3600)


app.mount("/hang", hang)


@app.on("thing.done", timeout_s=7200)
async def handle(event: Event, ctx: EventContext) -> None:
    await _wait(ctx, "handler", event.attempt)


@app.subscribe("thing", timeout_s=7200, partitions=1)
async def project(event: StoredEvent, ctx: SubscriptionContext) -> None:
    await _wait(ctx, "subscription", event.attempt)


@app.every(seconds=1, timeout_s=7200)
async def sweep(ctx: Context) -> None:
    ctx.log.info("periodic begins")
    await asyncio.sleep(3600)


@app.backfill("look_back", timeout_s=7200)
async def look_back(ctx: BackfillContext, cursor: str | None) -> str | None:
    ctx.log.info("backfill begins")
    await asyncio.sleep(3600)
    return None


@app.startup
async def publish(ctx: Context) -> None:
    async def unit(tx: Tx) -> None:
        await tx.publish("thing.done", {})
        await EventStore(tx).append("thing-1", [NewEvent(type="happened")], expected=0)

    if not _FLAG.exists():
        await ctx.run(unit)
