"""Progress of a subscription, told every second until it is done or somebody has to act."""

from __future__ import annotations

import asyncio
import json
import math
import sys

import click

from cordata import clock
from cordata.cli.progress import bar
from cordata.context import Context
from cordata.core.plural import plural
from cordata.core.progress import Progress, readable_s
from cordata.eventstore.inspection import Subscriptions
from cordata.eventstore.status import SubscriptionStatus

_EVERY_S = 1.0
_FIRST_S = 0.2
#: Unserved for so long: not merely between two workers.
_UNSERVED_S = 3.0


async def follow(
    ctx: Context, name: str, *, json_: bool, until_done: bool
) -> SubscriptionStatus | None:
    """Show how far a subscription is: a bar on a terminal's stderr, with `json_` a line on stdout.

    With `until_done` it returns once everything is handled, or what is left is blocked; else at
    Ctrl-C only. None: there is no such subscription.
    """
    subscriptions, progress, every_s = Subscriptions(ctx.store), Progress(), _FIRST_S
    unserved_since: float | None = None
    try:
        while True:
            status = await subscriptions.status(name)
            if status is None:
                return None
            progress.update(clock.monotonic(), status.behind)
            _show(status, progress, json_=json_)
            if until_done and is_over(status):
                return status
            if until_done:
                unserved_since = _warn(status, unserved_since)
            await asyncio.sleep(every_s)
            every_s = _EVERY_S
    finally:
        if not json_ and sys.stderr.isatty():
            click.echo("\r\x1b[K", nl=False, err=True)


def _warn(status: SubscriptionStatus, since: float | None) -> float | None:
    """Say once that nobody works at what is waited for. Returns since when; infinity: was said."""
    if status.state != "unserved":
        return None
    now = clock.monotonic()
    since = now if since is None else since
    if now - since < _UNSERVED_S:
        return since
    clear = "\r\x1b[K" if sys.stderr.isatty() else ""
    text = f"no worker serves {status.name}: start one, or stop waiting by Ctrl-C"
    click.echo(f"{clear}{text}; the reset stands", err=True)
    return math.inf


def is_over(status: SubscriptionStatus) -> bool:
    """Whether workers will do nothing more by themselves."""
    return not any(one.behind for one in status.partitions if one.blocked_at is None)


def _show(status: SubscriptionStatus, progress: Progress, *, json_: bool) -> None:
    eta_s = progress.eta_s
    if json_:
        line = {
            "name": status.name,
            "state": status.state,
            "position": status.position,
            "head": status.head,
            "behind": status.behind,
            "estimated": status.estimated,
            "rate": round(progress.rate, 1),
            "eta_s": None if eta_s is None else round(eta_s, 1),
        }
        click.echo(json.dumps(line))
        return
    text = (
        f"{bar(progress.share)}  {status.state}, position {status.position:,} of {status.head:,},"
        f" {'about ' if status.estimated else ''}{plural(status.behind, 'event')} left"
    )
    if progress.rate:
        text += f", {progress.rate:,.0f}/s"
    if status.behind and eta_s is not None:
        text += f", {readable_s(eta_s)} to go"
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{text}", nl=False, err=True)
    else:
        click.echo(text, err=True)
