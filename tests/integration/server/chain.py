"""An application for test mode: chains of events, retries, a crash, what nobody can handle."""

from __future__ import annotations

import os
import signal

from cordata import App, Event, EventContext, PermanentError, Tx

app = App("chain")


@app.on("step", concurrency=2)
async def follow(event: Event, ctx: EventContext) -> None:
    """Each step publishes the next, down to 0."""
    left = event.payload["left"]

    async def unit(tx: Tx) -> None:
        if left:
            await tx.publish("step", {"left": left - 1})
        else:
            await tx.publish("arrived", {})

    await ctx.run(unit)


@app.on("arrived")
async def count(event: Event, ctx: EventContext) -> None:
    """The end of a chain."""
    await ctx.run(lambda tx: tx.publish("counted", {}))


@app.on("flaky", retries=3)
async def flaky(event: Event, ctx: EventContext) -> None:
    """Succeeds at the third attempt."""
    if event.attempt < 3:
        raise ValueError("not yet")
    ctx.log.info("flaky ended at attempt %d", event.attempt)


@app.on("deadly", retries=1)
async def deadly(event: Event, ctx: EventContext) -> None:
    """Its process dies at the first attempt, or at each."""
    if event.attempt == 1 or event.payload.get("always"):
        os.kill(os.getpid(), signal.SIGKILL)


@app.on("hopeless")
async def hopeless(event: Event, ctx: EventContext) -> None:
    """Never."""
    raise PermanentError("never")
