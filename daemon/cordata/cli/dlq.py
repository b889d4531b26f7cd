"""`cordata dlq list|show|replay|drop`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from cordata.cli.options import (
    age_option,
    all_option,
    group_option,
    id_option,
    operator,
    paging,
    type_option,
    yes_option,
)

if TYPE_CHECKING:
    from cordata.broker.inspection import DeadLetters, Filter
    from cordata.cli.session import Counter
    from cordata.context import Context

_COLUMNS = ("event_id", "group", "type", "attempts", "dead_at", "error")
_CHOICE = "--type TYPE, --older-than AGE, --group GROUP or --all"


@click.group()
def dlq() -> None:
    """Dead letters: events that a consumer group gave up after its last retry.

    EVENT is an event's id. An event may be the dead letter of several groups: --group names one.
    """


@dlq.command(
    "list",
    short_help="List them, the latest first.",
    epilog="""Examples:

\b
  cordata dlq list
  cordata dlq list --group shop.send_voucher --older-than 1h
  cordata dlq list --limit 200 --json

Exit codes: 0 done, 1 --id names an event that is no dead letter.""",
)
@type_option
@group_option
@age_option
@id_option
@paging
@operator
def list_(
    type_: str | None,
    group: str | None,
    older_than: float | None,
    event_id: str | None,
    limit: int,
    after: str | None,
    json_: bool,
    directory: str | None,
    config: str | None,
    debug: bool,
) -> int:
    """List dead letters, the latest first, with the kind of their last error.

    Payload and error text, which may hold personal data, are shown by `cordata dlq show`.
    """
    from cordata.broker.inspection import DeadLetters, Filter
    from cordata.cli.session import before, run
    from cordata.cli.view import show_page

    wanted = Filter(event_id=event_id, type=type_, group=group, before=before(older_than))
    page = run(
        config, directory, lambda ctx: DeadLetters(ctx.store).page(wanted, limit=limit, after=after)
    )
    show_page([asdict(letter) for letter in page.items], page.next, _COLUMNS, json_=json_)
    return 1 if event_id and not page.items else 0


@dlq.command(
    short_help="Show one with payload and history.",
    epilog="""Examples:

\b
  cordata dlq show 0190b2c4d5e67f8090a1b2c3d4e5f607
  cordata dlq show 0190b2c4d5e67f8090a1b2c3d4e5f607 --group shop.send_voucher --json

Exit codes: 0 done, 1 it is no dead letter.""",
)
@click.argument("event_id", metavar="EVENT")
@group_option
@operator
def show(
    event_id: str,
    group: str | None,
    json_: bool,
    directory: str | None,
    config: str | None,
    debug: bool,
) -> int:
    """Show an event's dead letters with its payload, and every attempt with its error."""
    from cordata.broker.inspection import DeadLetters
    from cordata.cli.session import run
    from cordata.cli.view import show_all

    letters = run(config, directory, lambda ctx: DeadLetters(ctx.store).find(event_id, group=group))
    if not letters and not json_:
        click.echo(f"error: {event_id} is no dead letter", err=True)
    show_all([asdict(letter) for letter in letters], json_=json_)
    return 0 if letters else 1


@dlq.command(
    short_help="Give them back to their group.",
    epilog="""Examples:

\b
  cordata dlq replay 0190b2c4d5e67f8090a1b2c3d4e5f607
  cordata dlq replay --group shop.send_voucher
  cordata dlq replay --all

Exit codes: 0 done, 1 an event that was named is no dead letter.""",
)
@click.argument("event_ids", metavar="[EVENT]...", nargs=-1)
@type_option
@group_option
@age_option
@all_option
@operator
def replay(
    event_ids: tuple[str, ...],
    type_: str | None,
    group: str | None,
    older_than: float | None,
    all_: bool,
    json_: bool,
    directory: str | None,
    config: str | None,
    debug: bool,
) -> int:
    """Give dead letters back to the group that failed, with all its retries before it.

    Mend what made it fail first. Other groups of the event are left alone, the history stays, and
    what the group has committed already it does not do again.
    """
    return _settle("replay", event_ids, type_, group, older_than, all_, json_, directory, config)


@dlq.command(
    short_help="Delete them for good.",
    epilog="""Examples:

\b
  cordata dlq drop 0190b2c4d5e67f8090a1b2c3d4e5f607 --group shop.send_voucher
  cordata dlq drop --type page.viewed --older-than 1w --yes

Exit codes: 0 done, 1 an event that was named is no dead letter.""",
)
@click.argument("event_ids", metavar="[EVENT]...", nargs=-1)
@type_option
@group_option
@age_option
@all_option
@yes_option
@operator
def drop(
    event_ids: tuple[str, ...],
    type_: str | None,
    group: str | None,
    older_than: float | None,
    all_: bool,
    yes: bool,
    json_: bool,
    directory: str | None,
    config: str | None,
    debug: bool,
) -> int:
    """Delete dead letters: their group never handles these events."""
    return _settle(
        "drop", event_ids, type_, group, older_than, all_, json_, directory, config, yes=yes
    )


def _settle(
    verb: str,
    event_ids: tuple[str, ...],
    type_: str | None,
    group: str | None,
    older_than: float | None,
    all_: bool,
    json_: bool,
    directory: str | None,
    config: str | None,
    *,
    yes: bool = True,
) -> int:
    from cordata.broker.inspection import DeadLetters, Filter
    from cordata.cli.session import Counter, before, check_choice, confirm, run, tell

    narrowed = type_ is not None or older_than is not None
    # With ids --group says which of an event's letters; without, it is a choice of its own.
    check_choice(event_ids, narrowed or (group is not None and not event_ids), all_, _CHOICE)
    done = {"replay": "given back to their groups", "drop": "dropped"}[verb]
    confirm("Delete these dead letters for good?", yes=yes)
    counter = Counter(done)
    age = before(older_than)

    async def act(ctx: Context) -> tuple[int, list[str]]:
        letters = DeadLetters(ctx.store)
        if not event_ids:
            wanted = Filter(type=type_, group=group, before=age)
            return await _apply(letters, verb, wanted, counter), []
        counts = {
            one: await _apply(letters, verb, Filter(event_id=one, group=group), counter)
            for one in event_ids
        }
        return sum(counts.values()), [one for one, count in counts.items() if not count]

    count, missing = run(config, directory, act)
    counter.end()
    return tell(count, done, missing, json_=json_)


async def _apply(letters: DeadLetters, verb: str, wanted: Filter, counter: Counter) -> int:
    act = letters.drop if verb == "drop" else letters.replay
    return await act(wanted, progress=counter)
