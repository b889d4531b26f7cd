"""What `cordata subscriptions reset` asks and does."""

from __future__ import annotations

from dataclasses import asdict
from typing import Literal

import click

from cordata.app import App
from cordata.cli.following import follow
from cordata.cli.session import run_in
from cordata.cli.view import show_json
from cordata.config import Config
from cordata.context import Context
from cordata.eventstore.inspection import Subscriptions
from cordata.eventstore.status import SubscriptionStatus
from cordata.projection import Projection

Place = int | Literal["start", "end"]


def place_of(text: str) -> Place:
    """`start`, `end` or a position. Raises: click.UsageError."""
    if text == "start":
        return "start"
    if text == "end":
        return "end"
    if text.isascii() and text.isdecimal() and len(text) < 19:
        return int(text)
    raise click.UsageError(f"--to {text!r} is neither start nor end nor a position")


def question(name: str, place: Place, projection: Projection | None) -> str:
    """What is about to happen, so that nobody is surprised."""
    if projection is None:
        tables = "This application does not declare it: nothing of what it wrote is cleared."
    elif projection.clear is None:
        tables = "It has no reset function: what it wrote stays, and what comes is added to it."
    else:
        tables = "Its reset function clears what it wrote."
    handled = {
        "start": "Every event is handled again.",
        "end": "Events that it has not handled yet never will be.",
    }.get(str(place), f"Every event after position {place} is handled again, no other.")
    return f"{tables} {handled} Reset {name}?"


def is_there(config: Config, app: App, name: str) -> bool:
    """Whether there is such a subscription; asked before the operator is."""
    return run_in(config, app, lambda ctx: Subscriptions(ctx.store).status(name)) is not None


def run_reset(config: Config, app: App, name: str, place: Place, *, wait: bool, json_: bool) -> int:
    """Reset, and with `wait` follow it to its end. Returns the exit code."""
    projection = app.projections.get(name)

    async def act(ctx: Context) -> tuple[int | None, SubscriptionStatus | None]:
        position = await Subscriptions(ctx.store).reset(
            name,
            place,
            partitions=None if projection is None else projection.partitions,
            clear=None if projection is None else projection.clear,
        )
        if position is None or not wait:
            return position, None
        if not json_:
            click.echo(f"{name} begins anew after position {position}", err=True)
        return position, await follow(ctx, name, json_=json_, until_done=True)

    position, status = run_in(config, app, act)
    if position is None:
        click.echo(f"error: no subscription {name}; see `cordata subscriptions list`", err=True)
        return 1
    blocked = status is not None and status.blocked > 0
    if json_ and status is None:
        show_json({"name": name, "position": position})
    elif status is None:
        click.echo(f"{name} begins anew after position {position}")
    elif not json_:
        click.echo(f"{name} is {status.state} at position {status.position}")
    if blocked and status is not None:
        error = next((asdict(one)["error"] for one in status.partitions if one.error), "")
        click.echo(f"error: {name} is blocked: {error.partition(':')[0]}", err=True)
    return 1 if blocked else 0
