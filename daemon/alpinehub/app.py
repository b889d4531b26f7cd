"""The hub as an application of cordata: what is served, what is handled, what is kept up."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.routing import Route

from alpinehub import counts, demo, trail
from alpinehub.alpinebits.endpoint import alpinebits
from alpinehub.alpinebits.reading import READ_LARGE
from alpinehub.health import health, ready
from alpinehub.report.job import due_reports, send_report
from alpinehub.report.rendering import RENDER
from alpinehub.sources import sealed_elsewhere
from alpinehub.webhooks.endpoint import Webhooks
from alpinehub.webhooks.generic import generic
from cordata import App, Context, Event, EventContext

#: Handlers of one worker at once: their notes share a commit.
TRAIL_AT_ONCE = 64

app = App("alpinehub")
app.migrations("alpinehub.sql")
app.queries("alpinehub.sql")
app.command(RENDER, at="alpinehub.report.writing:render")
app.command(READ_LARGE, at="alpinehub.alpinebits.message:read_large")

app.mount(
    "/api",
    Starlette(
        routes=[
            Route("/health", health),
            Route("/ready", ready),
            Route("/alpinebits", alpinebits, methods=["POST"]),
        ]
    ),
)
app.mount("/api/webhook", Webhooks({"/generic": generic}))


@app.settings("alpinehub")
@dataclass(frozen=True, slots=True, kw_only=True)
class HubSettings:
    """[alpinehub]: the hub."""

    #: Make the hotel DEMO, its user demo/demo and its webhook secret demo at start. Never in
    #: production: everybody knows them.
    demo: bool = False
    #: Addresses that get the daily report of every hotel, beside the hotel's own.
    report_to: tuple[str, ...] = ()


@app.startup
async def make_demo(ctx: Context) -> None:
    """The demo hotel, where the configuration asks for it."""
    if ctx.settings["alpinehub"].demo and await demo.set_up(ctx):
        ctx.log.info("demo hotel made: code %s, user %s, secret %s", "DEMO", "demo", "demo")


@app.startup
async def check_secrets(ctx: Context) -> None:
    """Say at start, not at the first request, that a source's secret cannot be read."""
    if closed := await sealed_elsewhere(ctx):
        ctx.log.error(
            "%d sources cannot be served, their secrets do not open: %s; "
            "restore the credential master-key or run `alpinehub source rotate`",
            len(closed),
            ", ".join(closed[:10]),
        )


@app.on("reservation.received", concurrency=TRAIL_AT_ONCE)
async def note_received(event: Event, ctx: EventContext) -> None:
    """A new request is on the trail."""
    await trail.note(event, ctx)


@app.on("reservation.modified", concurrency=TRAIL_AT_ONCE)
async def note_modified(event: Event, ctx: EventContext) -> None:
    """A change is on the trail."""
    await trail.note(event, ctx)


@app.on("reservation.cancelled", concurrency=TRAIL_AT_ONCE)
async def note_cancelled(event: Event, ctx: EventContext) -> None:
    """A cancellation is on the trail."""
    await trail.note(event, ctx)


@app.on("reservation.delivered", concurrency=TRAIL_AT_ONCE)
async def note_delivered(event: Event, ctx: EventContext) -> None:
    """That hotel software fetched a version for the first time is on the trail."""
    await trail.note(event, ctx)


@app.on("reservation.acknowledged", concurrency=TRAIL_AT_ONCE)
async def note_acknowledged(event: Event, ctx: EventContext) -> None:
    """That hotel software took a version is on the trail."""
    await trail.note(event, ctx)


@app.on("reservation.refused", concurrency=TRAIL_AT_ONCE)
async def note_refused(event: Event, ctx: EventContext) -> None:
    """That hotel software cannot use a version is on the trail."""
    await trail.note(event, ctx)


@app.job("daily-report", due=due_reports)
async def daily_report(ctx: Context, scope: str, period: str) -> None:
    """The mail on one hotel's day: scope is its code, period the day."""
    await send_report(ctx, scope, period)


@app.every(seconds=60)
async def count_versions(ctx: Context) -> None:
    """Keep the hourly counts of each hotel."""
    await counts.count(ctx.store)
