"""An application whose handler fails until a file says that it was mended."""

from __future__ import annotations

from tests.integration.cli.mended import is_mended

from cordata import App, Event, EventContext, Tx

app = App("shop")


@app.on("order.made", retries=0)
async def pack(event: Event, ctx: EventContext) -> None:
    """The effect is another event."""
    if not is_mended():
        raise ValueError("no boxes left\x07")

    async def unit(tx: Tx) -> str:
        return await tx.publish("order.packed", {"order": event.id})

    await ctx.run(unit)


@app.on("order.made")
async def thank(event: Event, ctx: EventContext) -> None:
    """Another group of the same event, which does not fail."""
    await ctx.run(lambda tx: tx.publish("order.thanked", {"order": event.id}))
