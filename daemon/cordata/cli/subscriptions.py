"""`cordata subscriptions list|status|reset|resume|dead|drop`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from cordata.cli.options import limit_option, operator, yes_option

if TYPE_CHECKING:
    from cordata.eventstore.status import DeadEvent
    from cordata.projection import Projection

_COLUMNS = ("name", "category", "state", "workers", "partitions", "behind", "blocked", "dead")
_PARTS = ("partition", "state", "position", "behind", "attempts", "failing", "next_at", "owner")
_DEAD = ("position", "stream", "version", "type", "attempts", "dead_at", "error")
_STATES = ("blocked", "unserved", "retrying", "behind", "current")


@click.group()
def subscriptions() -> None:
    """Subscriptions to the event store: how far each is, begin anew, go on after a failure.

    NAME is that of the code: by default application.function. A subscription is current when it has
    handled everything, behind when there is more, retrying when an event fails, blocked when it
    waits for an operator, unserved when no worker takes part.
    """


@subscriptions.command(
    "list",
    short_help="List them.",
    epilog="""Examples:

\b
  cordata subscriptions list
  cordata subscriptions list --state blocked --json""",
)
@click.option("--state", type=click.Choice(_STATES), help="In this state.")
@click.option("--category", metavar="CATEGORY", help="To this category.")
@limit_option
@click.option("--after", metavar="NAME", help="Go on where the last page ended.")
@operator
def list_(
    state: str | None,
    category: str | None,
    limit: int,
    after: str | None,
    json_: bool,
    directory: str | None,
    config: str | None,
    debug: bool,
) -> int:
    """List all subscriptions that ever began, by name."""
    from cordata.cli.session import run
    from cordata.cli.view import show_page
    from cordata.eventstore.inspection import Subscriptions

    found, following = run(
        config,
        directory,
        lambda ctx: Subscriptions(ctx.store).page(
            state=state, category=category, after=after, limit=limit
        ),
    )
    rows = [{**asdict(one), "partitions": len(one.partitions)} for one in found]
    show_page(rows, following, _COLUMNS, json_=json_)
    return 0


@subscriptions.command(
    short_help="Show how far one is.",
    epilog="""Examples:

\b
  cordata subscriptions status shop.balances
  cordata subscriptions status shop.balances --follow
  cordata subscriptions status shop.balances --follow --json

Exit codes: 0 done, 1 there is no such subscription.""",
)
@click.argument("name")
@click.option("--follow", is_flag=True, help="Go on every second, until Ctrl-C.")
@operator
def status(
    name: str, follow: bool, json_: bool, directory: str | None, config: str | None, debug: bool
) -> int:
    """Show how far a subscription and each of its partitions is, and what fails.

    The text of an error may quote what an event holds.
    """
    from cordata.broker.owner import plain_name
    from cordata.cli.following import follow as follow_it
    from cordata.cli.session import run
    from cordata.cli.view import show_one
    from cordata.eventstore.inspection import Subscriptions

    if follow:
        try:
            seen = run(
                config, directory, lambda ctx: follow_it(ctx, name, json_=json_, until_done=False)
            )
        except KeyboardInterrupt:
            return 0
        return 0 if seen is not None else _unknown(name)
    found = run(config, directory, lambda ctx: Subscriptions(ctx.store).status(name))
    if found is None:
        return _unknown(name)
    if json_:
        show_one(asdict(found), json_=True)
        return 0
    parts = [
        {column: getattr(one, column) for column in _PARTS}
        | {"owner": one.owner and plain_name(one.owner)}
        for one in found.partitions
    ]
    errors = [{"partition": o.partition, "error": o.error} for o in found.partitions if o.error]
    show_one({**asdict(found), "partitions": parts, "errors": errors}, json_=False)
    return 0


@subscriptions.command(
    short_help="Begin anew.",
    epilog="""Examples:

\b
  cordata subscriptions reset shop.balances --to start --wait
  cordata subscriptions reset shop.mailer --to end --yes

Exit codes: 0 done, 1 there is no such subscription; with --wait also when it got blocked, 130 when
Ctrl-C ended the waiting.""",
)
@click.argument("name")
@click.option(
    "--to",
    metavar="PLACE",
    default="start",
    show_default=True,
    help="start, end, or a position: the events after it are handled.",
)
@click.option("--wait", is_flag=True, help="Show how far it is, until it has handled everything.")
@click.option("--app", metavar="MODULE:APP", help="Application instead of [app] import.")
@yes_option
@operator
def reset(
    name: str,
    to: str,
    wait: bool,
    app: str | None,
    yes: bool,
    json_: bool,
    directory: str | None,
    config: str | None,
    debug: bool,
) -> int:
    """Let a subscription begin anew at a place, with the partitions that the code says.

    Its reset function, if it has one, clears its tables in the same unit of work, its dead letters
    are deleted. Workers may go on meanwhile: what they have in hand is refused.
    """
    from cordata.cli.resetting import is_there, place_of, question, run_reset
    from cordata.cli.session import confirm, placed
    from cordata.loading import load

    place = place_of(to)
    loaded = load(config, app)
    settings = placed(loaded.config, directory)
    projection: Projection | None = loaded.app.projections.get(name)
    if not (yes or projection or is_there(settings, loaded.app, name)):
        return _unknown(name)
    confirm(question(name, place, projection), yes=yes)
    return run_reset(settings, loaded.app, name, place, wait=wait, json_=json_)


@subscriptions.command(
    short_help="Go on after a failure.",
    epilog="""Examples:

\b
  cordata subscriptions resume shop.balances
  cordata subscriptions resume shop.balances --partition 3 --skip

Exit codes: 0 done, 1 nothing is blocked.""",
)
@click.argument("name")
@click.option("--partition", type=click.IntRange(min=0), metavar="NUMBER", help="Only this one.")
@click.option("--skip", is_flag=True, help="Leave the failing event out, as a dead letter.")
@yes_option
@operator
def resume(
    name: str,
    partition: int | None,
    skip: bool,
    yes: bool,
    json_: bool,
    directory: str | None,
    config: str | None,
    debug: bool,
) -> int:
    """Let blocked partitions go on, with all retries before them: mend what failed first."""
    from cordata.cli.session import confirm, run
    from cordata.cli.view import show_json
    from cordata.core.plural import plural
    from cordata.eventstore.inspection import Subscriptions

    if skip:
        confirm(f"Leave out the events at which {name} is blocked?", yes=yes)
    count = run(
        config,
        directory,
        lambda ctx: Subscriptions(ctx.store).resume(name, partition=partition, skip=skip),
    )
    if json_:
        show_json({"count": count})
    else:
        click.echo(f"resumed: {plural(count, 'partition')}")
    return 0 if count else 1


@subscriptions.command(
    short_help="List events that one gave up.",
    epilog="""Examples:

\b
  cordata subscriptions dead shop.mailer
  cordata subscriptions dead shop.mailer --payload --limit 5""",
)
@click.argument("name")
@click.option("--payload", is_flag=True, help="Whole, with payload and every attempt.")
@limit_option
@click.option("--after", type=click.IntRange(min=0), metavar="POSITION", help="Go on after a page.")
@operator
def dead(
    name: str,
    payload: bool,
    limit: int,
    after: int | None,
    json_: bool,
    directory: str | None,
    config: str | None,
    debug: bool,
) -> int:
    """List the events that a subscription left out, the newest first, with the kind of the error.

    They are those of a subscription with on_error="dead", and what `resume --skip` left out. A
    reset handles them again with all others.
    """
    from cordata.cli.session import run
    from cordata.cli.view import show_all, show_page
    from cordata.eventstore.inspection import Subscriptions

    found, following = run(
        config,
        directory,
        lambda ctx: Subscriptions(ctx.store).letters(name, before=after, limit=limit),
    )
    if payload and not json_:
        show_all([asdict(one) for one in found], json_=False)
        return 0
    rows = [asdict(one) if payload else _short(one) for one in found]
    show_page(rows, None if following is None else str(following), _DEAD, json_=json_)
    return 0


@subscriptions.command(
    short_help="Forget one that no code has any more.",
    epilog="""Example: cordata subscriptions drop shop.old_balances

Exit codes: 0 done, 1 there is no such subscription, or a worker serves it.""",
)
@click.argument("name")
@yes_option
@operator
def drop(
    name: str, yes: bool, json_: bool, directory: str | None, config: str | None, debug: bool
) -> int:
    """Delete the positions and dead letters of a subscription. Its own tables stay."""
    from cordata.cli.session import confirm, run
    from cordata.cli.view import show_json
    from cordata.eventstore.inspection import Subscriptions

    confirm(f"Forget how far {name} is?", yes=yes)
    dropped = run(config, directory, lambda ctx: Subscriptions(ctx.store).drop(name))
    if not dropped:
        return _unknown(name)
    show_json({"dropped": name}) if json_ else click.echo(f"{name} is forgotten")
    return 0


def _short(one: DeadEvent) -> dict[str, Any]:
    kind = None if one.error is None else one.error.partition(":")[0]
    return {column: getattr(one, column) for column in _DEAD} | {"error": kind}


def _unknown(name: str) -> int:
    click.echo(f"error: no subscription {name}; see `cordata subscriptions list`", err=True)
    return 1
