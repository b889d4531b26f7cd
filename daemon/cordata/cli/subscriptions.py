"""`cordata subscriptions list|status|reset|resume|dead|drop`."""

from __future__ import annotations

import asyncio
import math
import sys
from collections import deque
from dataclasses import asdict
from typing import Any, Literal

import click

from cordata import clock
from cordata.app import App
from cordata.app_loader import load
from cordata.cli.operator import Operator, confirm, operator_options, run_in, unknown
from cordata.cli.options import app_option, yes_option
from cordata.config import Config
from cordata.context import Context
from cordata.core.number import parse_number
from cordata.eventstore.inspection import DeadEvent, Subscriptions, SubscriptionStatus
from cordata.log import plural
from cordata.process import plain_name
from cordata.subscription import Subscription
from cordata.terminal import (
    ROW_NUMBER,
    Group,
    ProgressBar,
    limit_option,
    show_json,
    show_page,
    show_record,
    span,
)

Place = int | Literal["start", "end"]

_COLUMNS = ("name", "category", "state", "workers", "partitions", "behind", "blocked", "dead")
_PARTS = ("partition", "state", "position", "behind", "attempts", "failing", "next_at", "owner")
_DEAD = ("position", "stream", "version", "type", "attempts", "dead_at", "error")
_STATES = ("blocked", "unserved", "retrying", "behind", "current")
#: Seconds between two lines of progress, and until the second one.
_EVERY_S, _FIRST_S = 1.0, 0.2
#: The rate is the average of this many seconds: long enough not to jump.
WINDOW_S = 10.0
#: After this long, an unserved subscription is reported: it is not just changing its worker.
_UNSERVED_S = 3.0


@click.group(cls=Group)
def subscriptions() -> None:
    """Subscriptions to the event store: show progress, reset, resume after a failure.

    NAME is the name in the code, by default application.function. A subscription is current if it
    has handled all events, behind if not, retrying while an event fails, blocked while it waits for
    an operator, unserved if no worker serves it.
    """


@subscriptions.command(
    "list",
    examples="""
        cordata subscriptions list
        cordata subscriptions list --state blocked --json
    """,
)
@click.option("--state", type=click.Choice(_STATES), help="Only in this state.")
@click.option("--category", metavar="CATEGORY", help="Only those of this category.")
@limit_option
@click.option("--after", metavar="NAME", help="Start after this name: the next page.")
@operator_options
def list_(
    operator: Operator, state: str | None, category: str | None, limit: int, after: str | None
) -> int:
    """List all subscriptions that were ever started, by name."""
    found, following = operator.run(
        lambda ctx: Subscriptions(ctx.store).page(
            state=state, category=category, after=after, limit=limit
        ),
    )
    rows = [{**asdict(one), "partitions": len(one.partitions)} for one in found]
    show_page(rows, _COLUMNS, next=following, json_=operator.json)
    return 0


@subscriptions.command(
    short_help="Show the progress of one.",
    examples="""
        cordata subscriptions status shop.balances
        cordata subscriptions status shop.balances --follow
        cordata subscriptions status shop.balances --follow --json
    """,
    exit_codes="0 done, 1 no such subscription",
)
@click.argument("name")
@click.option("--follow", is_flag=True, help="Repeat every second, until Ctrl-C.")
@operator_options
def status(operator: Operator, name: str, follow: bool) -> int:
    """Show the progress of a subscription and of each partition, and errors.

    The text of an error may quote data of an event.
    """
    if follow:
        try:
            seen = operator.run(
                lambda ctx: _follow(ctx, name, json_=operator.json, until_done=False)
            )
        except KeyboardInterrupt:
            return 0
        if seen is None:
            raise unknown("subscription", name)
        return 0
    found = operator.run(lambda ctx: Subscriptions(ctx.store).status(name))
    if found is None:
        raise unknown("subscription", name)
    if operator.json:
        show_record(asdict(found), json_=True)
        return 0
    parts = [
        {column: getattr(one, column) for column in _PARTS}
        | {"owner": one.owner and plain_name(one.owner)}
        for one in found.partitions
    ]
    errors = [{"partition": o.partition, "error": o.error} for o in found.partitions if o.error]
    show_record({**asdict(found), "partitions": parts, "errors": errors}, json_=False)
    return 0


@subscriptions.command(
    short_help="Start again from a position.",
    examples="""
        cordata subscriptions reset shop.balances --to start --wait
        cordata subscriptions reset shop.mailer --to end --yes
    """,
    exit_codes="""
        0 done, 1 no such subscription, or with --wait it is blocked, 130 Ctrl-C ended the waiting
    """,
)
@click.argument("name")
@click.option(
    "--to",
    metavar="PLACE",
    default="start",
    show_default=True,
    help="start, end, or a position: events after it are handled.",
)
@click.option("--wait", is_flag=True, help="Show progress until all events are handled.")
@app_option
@yes_option
@operator_options
def reset(operator: Operator, name: str, to: str, wait: bool, app: str | None, yes: bool) -> int:
    """Start a subscription again from PLACE, with the number of partitions that the code declares.

    In the same transaction its reset function, if any, clears its tables, and its dead letters are
    deleted. Workers need not be stopped: what they commit for it meanwhile is refused.
    """
    place = _place_of(to)
    loaded = load(operator.config, app)
    settings = operator.with_state_dir(loaded.config)
    subscription: Subscription | None = loaded.app.subscriptions.get(name)
    if not (yes or subscription):  # report an unknown name before asking
        status = run_in(settings, loaded.app, lambda ctx: Subscriptions(ctx.store).status(name))
        if status is None:
            raise unknown("subscription", name)
    confirm(_question(name, place, subscription), yes=yes)
    return _run_reset(settings, loaded.app, name, place, wait=wait, json_=operator.json)


@subscriptions.command(
    examples="""
        cordata subscriptions resume shop.balances
        cordata subscriptions resume shop.balances --partition 3 --skip
    """,
    exit_codes="0 done, 1 nothing is blocked",
)
@click.argument("name")
@click.option("--partition", type=ROW_NUMBER, metavar="NUMBER", help="Only this one.")
@click.option("--skip", is_flag=True, help="Skip the failing event: it becomes a dead letter.")
@yes_option
@operator_options
def resume(operator: Operator, name: str, partition: int | None, skip: bool, yes: bool) -> int:
    """Let blocked partitions continue, with all retries available again.

    Correct the cause of the failure first.
    """
    if skip:
        confirm(f"Skip the events at which {name} is blocked?", yes=yes)

    async def act(ctx: Context) -> int:
        known = Subscriptions(ctx.store)
        if await known.status(name) is None:
            raise unknown("subscription", name)
        return await known.resume(name, partition=partition, skip=skip)

    count = operator.run(act)
    operator.print_result({"count": count}, f"resumed: {plural(count, 'partition')}")
    return 0 if count else 1


@subscriptions.command(
    short_help="List events that one skipped.",
    examples="""
        cordata subscriptions dead shop.mailer
        cordata subscriptions dead shop.mailer --payload --limit 5
    """,
)
@click.argument("name")
@click.option("--payload", is_flag=True, help="Show payload and every attempt.")
@limit_option
@click.option("--after", type=ROW_NUMBER, metavar="POSITION", help="Start after it: the next page.")
@operator_options
def dead(operator: Operator, name: str, payload: bool, limit: int, after: int | None) -> int:
    """List the events that a subscription skipped, newest first, with the kind of the error.

    Events are skipped after their last retry by a subscription with on_error="dead", and by `resume
    --skip`. After a reset they are handled again like all others.
    """
    found, following = operator.run(
        lambda ctx: Subscriptions(ctx.store).dead_events(name, before=after, limit=limit),
    )
    rows = [asdict(one) if payload else _short(one) for one in found]
    start = None if following is None else str(following)
    show_page(rows, _DEAD, next=start, whole=payload, json_=operator.json)
    return 0


@subscriptions.command(
    short_help="Delete one that the code no longer declares.",
    examples="cordata subscriptions drop shop.old_balances",
    exit_codes="0 done, 1 no such subscription, or a worker serves it",
)
@click.argument("name")
@yes_option
@operator_options
def drop(operator: Operator, name: str, yes: bool) -> int:
    """Delete the positions and dead letters of a subscription. The tables that it wrote stay."""
    confirm(f"Delete the positions and dead letters of {name}?", yes=yes)
    dropped = operator.run(lambda ctx: Subscriptions(ctx.store).drop(name))
    if not dropped:
        raise unknown("subscription", name)
    operator.print_result({"dropped": name}, f"{name} is deleted")
    return 0


def _short(one: DeadEvent) -> dict[str, Any]:
    kind = None if one.error is None else one.error.partition(":")[0]
    return {column: getattr(one, column) for column in _DEAD} | {"error": kind}


def _place_of(text: str) -> Place:
    """`start`, `end` or a position. Raises: click.UsageError."""
    if text == "start":
        return "start"
    if text == "end":
        return "end"
    if (position := parse_number(text)) is not None:
        return position
    raise click.UsageError(f"--to {text!r} is not start, end or a position")


def _question(name: str, place: Place, subscription: Subscription | None) -> str:
    """The question before a reset, with its effects."""
    if subscription is None:
        tables = "This application does not declare it: the data that it wrote stays."
    elif subscription.clear is None:
        tables = "It has no reset function: the data that it wrote stays, new data is added to it."
    else:
        tables = "Its reset function clears the data that it wrote."
    handled = {
        "start": "Every event is handled again.",
        "end": "Events that it has not handled yet are skipped.",
    }.get(str(place), f"Every event after position {place} is handled again, the others not.")
    return f"{tables} {handled} Reset {name}?"


def _run_reset(
    config: Config, app: App, name: str, place: Place, *, wait: bool, json_: bool
) -> int:
    """Reset, and with `wait` show progress to the end. Returns the exit code."""
    subscription = app.subscriptions.get(name)

    async def act(ctx: Context) -> tuple[int | None, SubscriptionStatus | None]:
        position = await Subscriptions(ctx.store).reset(
            name,
            place,
            partitions=None if subscription is None else subscription.partitions,
            clear=None if subscription is None else subscription.clear,
        )
        if position is None or not wait:
            return position, None
        if not json_:
            click.echo(f"{name} starts again after position {position}", err=True)
        return position, await _follow(ctx, name, json_=json_, until_done=True)

    position, status = run_in(config, app, act)
    if position is None:
        raise unknown("subscription", name)
    blocked = status is not None and status.blocked > 0
    if json_ and status is None:
        show_json({"name": name, "position": position})
    elif status is None:
        click.echo(f"{name} starts again after position {position}")
    elif not json_:
        click.echo(f"{name} is {status.state} at position {status.position}")
    if blocked and status is not None:
        error = next((asdict(one)["error"] for one in status.partitions if one.error), "")
        click.echo(f"error: {name} is blocked: {error.partition(':')[0]}", err=True)
    return 1 if blocked else 0


async def _follow(
    ctx: Context, name: str, *, json_: bool, until_done: bool
) -> SubscriptionStatus | None:
    """Show the progress of a subscription: on stderr, on a terminal as a bar; with `json_` as lines
    on stdout.

    With `until_done`, returns when all events are handled or the remaining ones are blocked; else
    only Ctrl-C ends it. Returns the last status; None if there is no such subscription.
    """
    subscriptions, progress, every_s = Subscriptions(ctx.store), Progress(), _FIRST_S
    unserved_since: float | None = None
    with ProgressBar() as bar:
        while True:
            status = await subscriptions.status(name)
            if status is None:
                return None
            now = clock.monotonic()
            progress.update(now, status.behind)
            if json_:
                show_json(_progress_record(status, progress), one_line=True)
            elif sys.stderr.isatty():
                bar.draw(progress.share, _progress_text(status, progress))
            else:
                text = _progress_text(status, progress)
                click.echo(f"{progress.share:4.0%}  {text}".replace("%", " %"), err=True)
            if until_done and _is_over(status):
                return status
            if status.state != "unserved":
                unserved_since = None
            elif until_done:
                unserved_since = now if unserved_since is None else unserved_since
                if now - unserved_since >= _UNSERVED_S:
                    bar.say(
                        f"no worker serves {name}: start one, or stop waiting with Ctrl-C; the"
                        " reset is done"
                    )
                    unserved_since = math.inf  # print it once
            await asyncio.sleep(every_s)
            every_s = _EVERY_S


def _is_over(status: SubscriptionStatus) -> bool:
    """Whether all events are handled, but for those of blocked partitions."""
    return not any(one.behind for one in status.partitions if one.blocked_at is None)


def _progress_record(status: SubscriptionStatus, progress: Progress) -> dict[str, object]:
    eta_s = progress.eta_s
    return {
        "name": status.name,
        "state": status.state,
        "position": status.position,
        "head": status.head,
        "behind": status.behind,
        "estimated": status.estimated,
        "rate": round(progress.rate, 1),
        "eta_s": None if eta_s is None else round(eta_s, 1),
    }


def _progress_text(status: SubscriptionStatus, progress: Progress) -> str:
    text = (
        f"{status.state}, position {status.position:,} of {status.head:,},"
        f" {'about ' if status.estimated else ''}{plural(status.behind, 'event')} left"
    )
    if progress.rate:
        text += f", {progress.rate:,.0f}/s"
    if status.behind and progress.eta_s is not None:
        text += f", {span(progress.eta_s)} to go"
    return text


class Progress:
    """Rate and remaining time of long work; more work may be added meanwhile."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()
        self._most = 0

    def update(self, now: float, left: int) -> None:
        """Record the number of events left at `now` (monotonic seconds)."""
        self._samples.append((now, left))
        while len(self._samples) > 2 and self._samples[1][0] <= now - WINDOW_S:
            self._samples.popleft()
        self._most = max(self._most, left)

    @property
    def rate(self) -> float:
        """Events done per second; 0.0 while there is no progress."""
        if len(self._samples) < 2:
            return 0.0
        (began, most), (now, left) = self._samples[0], self._samples[-1]
        return max(0.0, (most - left) / (now - began)) if now > began else 0.0

    @property
    def share(self) -> float:
        """The share that is done, 0 to 1, of the largest number of events left so far."""
        left = self._samples[-1][1] if self._samples else 0
        return 1.0 - left / self._most if self._most else 1.0

    @property
    def eta_s(self) -> float | None:
        """Seconds to the end at this rate; None if there is no progress."""
        left = self._samples[-1][1] if self._samples else 0
        if not left:
            return 0.0
        return left / self.rate if self.rate > 0.0 else None
