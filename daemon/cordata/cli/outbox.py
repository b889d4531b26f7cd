"""`cordata outbox list|show|retry|purge`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from cordata.cli.options import (
    age,
    age_option,
    all_option,
    id_option,
    operator,
    paging,
    type_option,
    yes_option,
)

if TYPE_CHECKING:
    from cordata.context import Context

_COLUMNS = ("event_id", "type", "state", "priority", "created_at", "due_at", "published_at")


@click.group()
def outbox() -> None:
    """Events that were written: look, make due, delete what is done with.

    An entry is pending until the relay has published it to the groups that handle its type; then it
    is kept for [engine] retention_s. EVENT is an event's id.
    """


@outbox.command(
    "list",
    short_help="List entries, the newest first.",
    epilog="""Examples:

\b
  cordata outbox list
  cordata outbox list --state pending --older-than 5m
  cordata outbox list --type reservation.received --limit 200 --json

Exit codes: 0 done, 1 --id names an event that is not there.""",
)
@click.option("--state", type=click.Choice(["pending", "published"]), help="In this state.")
@type_option
@age_option
@id_option
@paging
@operator
def list_(
    state: str | None,
    type_: str | None,
    older_than: float | None,
    event_id: str | None,
    limit: int,
    after: str | None,
    json_: bool,
    directory: str | None,
    config: str | None,
    debug: bool,
) -> int:
    """List entries, the newest first, without their payload."""
    from cordata.broker.inspection import Filter, Outbox
    from cordata.cli.session import before, run
    from cordata.cli.view import show_page

    wanted = Filter(event_id=event_id, type=type_, state=state, before=before(older_than))
    page = run(
        config, directory, lambda ctx: Outbox(ctx.store).page(wanted, limit=limit, after=after)
    )
    show_page([asdict(entry) for entry in page.items], page.next, _COLUMNS, json_=json_)
    return 1 if event_id and not page.items else 0


@outbox.command(
    short_help="Show one entry with its payload.",
    epilog="""Example: cordata outbox show 0190b2c4d5e67f8090a1b2c3d4e5f607

Exit codes: 0 done, 1 there is no such event.""",
)
@click.argument("event_id", metavar="EVENT")
@operator
def show(event_id: str, json_: bool, directory: str | None, config: str | None, debug: bool) -> int:
    """Show one entry with its payload, and what became of it in each group."""
    from cordata.broker.inspection import Outbox
    from cordata.cli.session import run
    from cordata.cli.view import show_one

    entry = run(config, directory, lambda ctx: Outbox(ctx.store).get(event_id))
    if entry is None:
        click.echo(f"error: no event {event_id} in the outbox", err=True)
        return 1
    show_one(asdict(entry), json_=json_)
    return 0


@outbox.command(
    short_help="Make waiting entries due now.",
    epilog="""Examples:

\b
  cordata outbox retry 0190b2c4d5e67f8090a1b2c3d4e5f607
  cordata outbox retry --type reservation.received

Exit codes: 0 done, 1 an event that was named does not wait.""",
)
@click.argument("event_ids", metavar="[EVENT]...", nargs=-1)
@type_option
@all_option
@operator
def retry(
    event_ids: tuple[str, ...],
    type_: str | None,
    all_: bool,
    json_: bool,
    directory: str | None,
    config: str | None,
    debug: bool,
) -> int:
    """Make entries that wait for their time due now: those of a back-off, and those delayed."""
    from cordata.broker.inspection import Filter, Outbox
    from cordata.cli.session import Counter, check_choice, run, tell

    check_choice(event_ids, type_ is not None, all_, "--type TYPE or --all")
    counter = Counter("made due")

    async def act(ctx: Context) -> tuple[int, list[str]]:
        box = Outbox(ctx.store)
        if not event_ids:
            return await box.retry(Filter(type=type_), progress=counter), []
        counts = {one: await box.retry(Filter(event_id=one)) for one in event_ids}
        return sum(counts.values()), [one for one, count in counts.items() if not count]

    count, missing = run(config, directory, act)
    counter.end()
    return tell(count, "due now", missing, json_=json_)


@outbox.command(
    short_help="Delete what was published.",
    epilog="""Examples:

\b
  cordata outbox purge --older-than 1d
  cordata outbox purge --older-than 1h --type page.viewed --yes""",
)
@click.option(
    "--older-than",
    callback=age,
    metavar="AGE",
    required=True,
    help="Published 90s, 1h, 2d, 1w ago.",
)
@type_option
@yes_option
@operator
def purge(
    older_than: float,
    type_: str | None,
    yes: bool,
    json_: bool,
    directory: str | None,
    config: str | None,
    debug: bool,
) -> int:
    """Delete entries that were published that long ago.

    What a group has not handled yet, or has as a dead letter, stays. Retention deletes by itself
    what is older than [engine] retention_s.
    """
    from cordata.broker.inspection import Outbox
    from cordata.cli.session import Counter, before, confirm, run, tell

    of_type = f" of type {type_}" if type_ else ""
    confirm(f"Delete all events{of_type} published more than {older_than:g} s ago?", yes=yes)
    counter, moment = Counter("deleted"), before(older_than) or 0
    count = run(
        config,
        directory,
        lambda ctx: Outbox(ctx.store).purge(before=moment, type=type_, progress=counter),
    )
    counter.end()
    return tell(count, "deleted", [], json_=json_)
