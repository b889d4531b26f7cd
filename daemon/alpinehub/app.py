"""The hub as an application of cordata: what is served, what is handled, what is kept up."""

from __future__ import annotations

from alpinehub import counts, demo, history, inbox, retention
from alpinehub.alpinebits.call import READ_LARGE
from alpinehub.alpinebits.prerender import prerender
from alpinehub.alpinebits.serving import FIT_LARGE
from alpinehub.api import alpinebits, api
from alpinehub.customers import maintenance
from alpinehub.customers.hashing import RULE
from alpinehub.monitoring.stale_clients import watch
from alpinehub.push import delivery
from alpinehub.push.schedule import waker
from alpinehub.report.job import due_portfolio, due_reports, send_portfolio, send_report
from alpinehub.report.rendering import RENDER
from alpinehub.settings import HubSettings
from alpinehub.sources import describe_closed, sealed_elsewhere
from alpinehub.webhooks import form_limit
from alpinehub.webhooks.endpoint import Webhooks
from alpinehub.webhooks.generic import generic
from alpinehub.webhooks.lenient import form, google, wix
from cordata import App, BackfillContext, Context, Event, EventContext

#: Handlers of one worker at once: their notes share a commit.
TRAIL_AT_ONCE = 64
INTERPRETED_AT_ONCE = 32
#: Each of them waits for somebody else's server, for 30 s at worst.
PUSHED_AT_ONCE = 64

app = App("alpinehub")
app.migrations("alpinehub.sql")
app.queries("alpinehub.sql")
app.command(RENDER, at="alpinehub.report.writing:render")
app.command(READ_LARGE, at="alpinehub.alpinebits.large:read_large")
app.command(FIT_LARGE, at="alpinehub.alpinebits.fitting:fit_large")

app.mount("/api", api)
app.mount("/api/alpinebits", alpinebits, error_text="ERROR:")
app.mount(
    "/api/webhook",
    Webhooks(
        {"/generic": generic, "/wix/": wix, "/google": google, "/google/": google, "/form/": form}
    ),
    logged_segments=2,  # the kind and the hotel: what follows is a secret
)
app.settings("alpinehub")(HubSettings)


@app.startup
async def make_demo(ctx: Context) -> None:
    """The demo hotel, where the configuration asks for it."""
    if ctx.settings["alpinehub"].demo and await demo.set_up(ctx):
        ctx.log.info("demo hotel made: code %s, account %s, secret %s", "DEMO", "demo", "demo")


@app.startup
async def check_secrets(ctx: Context) -> None:
    """Say at start, not at the first request, that a source's secret cannot be read."""
    if closed := (await sealed_elsewhere(ctx)).names:
        ctx.log.error(
            "%d sources cannot be served, their secrets do not open: %s; "
            "restore the credential master-key or run `alpinehub source rotate`",
            len(closed),
            ", ".join(closed[:10]),
        )


@app.check
async def closed_secrets(ctx: Context) -> list[str]:
    """Which sources cannot be served, and what to do."""
    closed = (await sealed_elsewhere(ctx)).names
    return [describe_closed(closed)] if closed else []


@app.on("inbox.received", concurrency=INTERPRETED_AT_ONCE)
async def interpret(event: Event, ctx: EventContext) -> None:
    """What a lenient source sent becomes a reservation, or waits in the review list."""
    await inbox.interpret(event, ctx)


@app.on("reservation.received", concurrency=TRAIL_AT_ONCE)
async def note_received(event: Event, ctx: EventContext) -> None:
    """A new request is on the trail."""
    await _note_version(event, ctx)


@app.on("reservation.modified", concurrency=TRAIL_AT_ONCE)
async def note_modified(event: Event, ctx: EventContext) -> None:
    """A change is on the trail."""
    await _note_version(event, ctx)


@app.on("reservation.cancelled", concurrency=TRAIL_AT_ONCE)
async def note_cancelled(event: Event, ctx: EventContext) -> None:
    """A cancellation is on the trail."""
    await _note_version(event, ctx)


async def _note_version(event: Event, ctx: EventContext) -> None:
    """With it whatever else there is to do for a new version."""
    held = await prerender(ctx, event)
    # Woken first: what the version of his polls cannot carry, that of the push may.
    await history.note(event, ctx, await waker(ctx, event.payload["hotel_id"]), held)


@app.on("reservation.delivered", concurrency=TRAIL_AT_ONCE)
async def note_delivered(event: Event, ctx: EventContext) -> None:
    """That hotel software fetched a version for the first time is on the trail."""
    await history.note(event, ctx)


@app.on("reservation.acknowledged", concurrency=TRAIL_AT_ONCE)
async def note_acknowledged(event: Event, ctx: EventContext) -> None:
    """That hotel software took a version is on the trail."""
    await history.note(event, ctx)


@app.on("reservation.rejected", concurrency=TRAIL_AT_ONCE)
async def note_refused(event: Event, ctx: EventContext) -> None:
    """That hotel software cannot use a version is on the trail."""
    await history.note(event, ctx)


@app.on("push.due", key=True, retries=3, concurrency=PUSHED_AT_ONCE, timeout_s=delivery.TIMEOUT_S)
async def push(event: Event, ctx: EventContext) -> None:
    """What waits is brought to hotel software that does not come for it."""
    await delivery.bring(event, ctx)


@app.on("reservation.status", concurrency=TRAIL_AT_ONCE)
async def note_status(event: Event, ctx: EventContext) -> None:
    """What became of a request at the hotel is on the trail."""
    await history.note(event, ctx)


@app.job("daily-report", due=due_reports)
async def daily_report(ctx: Context, scope: str, period: str) -> None:
    """The mail on one hotel's day: scope is its code, period the day."""
    await send_report(ctx, scope, period)


@app.job("portfolio-report", due=due_portfolio)
async def portfolio_report(ctx: Context, scope: str, period: str) -> None:
    """The mail on one day of all hotels."""
    await send_portfolio(ctx, scope, period)


@app.every(seconds=300)
async def check_clients(ctx: Context) -> None:
    """Miss hotel software that does not come."""
    await watch(ctx)


@app.every(seconds=60)
async def sweep_pushes(ctx: Context) -> None:
    """Bring what waits for hotel software that does not come, and was forgotten."""
    await delivery.sweep(ctx)


@app.every(seconds=60)
async def take_up_inbox(ctx: Context) -> None:
    """Interpret what was received and left lying."""
    await inbox.take_up(ctx)


@app.every(seconds=60)
async def forget_form_limits(ctx: Context) -> None:
    """Delete the token buckets of forms that are full again."""
    await ctx.run(form_limit.forget)


@app.every(seconds=60)
async def count_versions(ctx: Context) -> None:
    """Keep the hourly counts of each hotel."""
    await counts.count(ctx.store)


@app.every(seconds=5)
async def keep_up_customers(ctx: Context) -> None:
    """Make the numbers and hashes of new customers, and one of those who are one."""
    await maintenance.keep_up(ctx.store)


@app.every(seconds=900)
async def retain(ctx: Context) -> None:
    """End what was kept long enough."""
    await retention.retain(ctx)


@app.backfill(f"customer-hashes-{RULE}", batch=maintenance.STEP)
async def hash_customers(ctx: BackfillContext, cursor: str | None) -> str | None:
    """Make them all again by this rule."""
    return await maintenance.rehash(ctx.store, cursor, ctx.batch)
