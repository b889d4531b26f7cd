"""A worker process with a handler that ends it; `python -m` runs it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import uvloop
from tests.integration.engine import engine

from cordata.app import App
from cordata.context import Event, EventContext

app = App("t")


@app.on("thing.wild", retries=2, concurrency=1)
async def wild(event: Event, ctx: EventContext) -> None:
    """Ends its worker in the way the payload says."""
    how = event.payload.get("how")
    if how == "stop":
        asyncio.get_running_loop().stop()
    elif how == "exit":
        async with asyncio.TaskGroup() as group:
            group.create_task(_exit())
    elif how == "cancel":
        for task in asyncio.all_tasks():
            task.cancel()
    if how:
        await asyncio.sleep(30)
    await ctx.run(lambda tx: tx.execute("add_effect", event_id=event.id, owner="", at=1))


async def _exit() -> None:
    raise SystemExit(3)


if __name__ == "__main__":
    engine.app = app
    uvloop.run(engine.main(Path(sys.argv[1])))
