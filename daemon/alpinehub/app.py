"""The hub as an application of cordata: mounts, handlers, jobs, commands, periodic tasks."""

from __future__ import annotations

from alpinehub import counts, demo, retention
from alpinehub.alpinebits.call import CONVERT_LARGE, READ_LARGE
from alpinehub.api import alpinebits, api
from alpinehub.customers.duplicates import merge_duplicates
from alpinehub.hotels import list_hotels
from alpinehub.models import is_time_zone
from alpinehub.monitoring import watch
from alpinehub.push import delivery, schedule, target
from alpinehub.report.job import due_portfolio, due_reports, send_portfolio, send_report
from alpinehub.settings import HubSettings
from alpinehub.sources import describe_closed, sealed_elsewhere
from alpinehub.webhooks import form_endpoint, form_limit, generic, receive
from alpinehub.webhooks.endpoint import Webhooks
from cordata import App, Context, Event, EventContext

#: Handlers of one worker at once.
WAKES_AT_ONCE = 64
#: Each of them waits for a server of hotel software, for 30 s at most.
PUSHED_AT_ONCE = 64

app = App("alpinehub")
app.migrations("alpinehub.sql")
app.queries("alpinehub.sql")
app.command(READ_LARGE, at="alpinehub.alpinebits.large:read_large")
app.command(CONVERT_LARGE, at="alpinehub.alpinebits.large:convert_large")

app.mount("/api", api)
app.mount("/api/alpinebits", alpinebits, error_text="ERROR:")
app.mount(
    "/api/webhook",
    Webhooks(
        {
            "/generic": generic.post,
            "/wix/": receive.post_wix,
            "/google": receive.post_google,
            "/google/": receive.post_google,
            "/form/": form_endpoint.post,
        }
    ),
    logged_segments=2,  # the kind and the hotel: what follows is a secret
)
app.settings("alpinehub")(HubSettings)
# For handlers of applications that extend the hub.
app.publishes("reservation.received", "reservation.modified", "reservation.cancelled")


@app.startup
async def make_demo(ctx: Context) -> None:
    """Make the demo hotel if it is configured (`[alpinehub] demo`)."""
    if ctx.settings["alpinehub"].demo and await demo.set_up(ctx):
        ctx.log.info("demo hotel made: code %s, account %s, secret %s", "DEMO", "demo", "demo")


@app.startup
async def check_secrets(ctx: Context) -> None:
    """Log at the start, not at the first request, that a source's secret cannot be unsealed."""
    for problem in await closed_secrets(ctx):
        ctx.log.error("%s", problem)


@app.check
async def closed_secrets(ctx: Context) -> list[str]:
    """The sources whose secret cannot be unsealed, and what to do."""
    closed = (await sealed_elsewhere(ctx)).names
    return [describe_closed(closed)] if closed else []


@app.check
async def closed_push_passwords(ctx: Context) -> list[str]:
    """The accounts whose push password cannot be unsealed, and what to do."""
    closed = await target.closed_passwords(ctx)
    if not closed:
        return []
    return [
        "the push passwords of these accounts do not open with this host's master-key: "
        f"{', '.join(closed)}; "
        "restore the credential master-key, or run `alpinehub account push set` for each"
    ]


@app.check
async def unknown_time_zones(ctx: Context) -> list[str]:
    """The hotels whose time zone this host does not know: they get no report, and all else uses
    UTC for them.
    """
    hotels = await list_hotels(ctx.store)
    unknown = [str(one["code"]) for one in hotels if not is_time_zone(str(one["time_zone"]))]
    if not unknown:
        return []
    return [f"this host does not know the time zone of {', '.join(unknown)}; apt install tzdata"]


@app.on("push.wanted", concurrency=WAKES_AT_ONCE)
async def wake_push(event: Event, ctx: EventContext) -> None:
    """Schedule the pushes of a hotel with a new version."""
    await ctx.run(lambda tx: schedule.wake(tx, hotel_id=event.payload["hotel_id"]))


@app.on("push.due", key=True, retries=3, concurrency=PUSHED_AT_ONCE, timeout_s=delivery.TIMEOUT_S)
async def push(event: Event, ctx: EventContext) -> None:
    """Push waiting guest requests to hotel software that does not poll."""
    await delivery.deliver(event, ctx)


@app.job("daily-report", due=due_reports)
async def daily_report(ctx: Context, scope: str, period: str) -> None:
    """Mail the report on one hotel's day: scope is the hotel's code, period the day."""
    await send_report(ctx, scope, period)


@app.job("portfolio-report", due=due_portfolio)
async def portfolio_report(ctx: Context, scope: str, period: str) -> None:
    """Mail the summary of one day of all hotels."""
    await send_portfolio(ctx, scope, period)


@app.every(seconds=300)
async def check_clients(ctx: Context) -> None:
    """Alert about hotel software that no longer polls."""
    await watch(ctx)


@app.every(seconds=60)
async def sweep_pushes(ctx: Context) -> None:
    """Push waiting guest requests that have no push.due event."""
    await delivery.sweep(ctx)


@app.every(seconds=60)
async def forget_form_limits(ctx: Context) -> None:
    """Delete the token buckets of forms that are full again."""
    await ctx.run(form_limit.forget)


@app.every(seconds=60)
async def fold_counts(ctx: Context) -> None:
    """Add the latest counts to the hourly counts of each hotel."""
    await counts.fold(ctx.store)


@app.every(seconds=5)
async def merge_customers(ctx: Context) -> None:
    """Merge customers who are due because their numbers may be equal."""
    await merge_duplicates(ctx.store)


@app.every(seconds=900)
async def retain(ctx: Context) -> None:
    """Delete data whose retention has ended."""
    await retention.retain(ctx)
