"""An application with two subscriptions, whose handlers fail until a file says they are mended."""

from __future__ import annotations

from tests.integration.cli.mended import is_mended

from cordata import App, StoredEvent, SubscriptionContext, Tx

SQL = "tests.integration.eventstore.sql"

app = App("bank")
app.migrations(SQL)
app.queries(SQL)


def check(event: StoredEvent) -> None:
    """Raise for a bad one."""
    if event.payload.get("bad") and not is_mended():
        raise ValueError("no such guest: Eva Muster\x07")


@app.subscribe("account", partitions=4, retries=0)
async def balances(event: StoredEvent, ctx: SubscriptionContext) -> None:
    """Blocks at a bad event."""
    check(event)

    async def unit(tx: Tx) -> None:
        await tx.write("ledger.add", stream=event.stream, amount=event.payload.get("amount", 0))

    await ctx.run(unit)


@balances.reset
async def clear(tx: Tx) -> None:
    """As if nothing had been added up."""
    await tx.execute("ledger.clear")


@app.subscribe("account", partitions=2, retries=0, on_error="dead")
async def mailer(event: StoredEvent, ctx: SubscriptionContext) -> None:
    """Leaves a bad event out."""
    check(event)
