"""`cordata dlq list|show|replay|drop`."""

from __future__ import annotations

from dataclasses import asdict

import click

from cordata.broker.inspection import DeadLetter, DeadLetters, Page
from cordata.cli.choice import Choice, choosing
from cordata.cli.operator import Operator, confirm, operator_options, unknown
from cordata.cli.options import paging, yes_option
from cordata.context import Context
from cordata.process import plain_name
from cordata.terminal import Group, show_page, show_records

_COLUMNS = ("event_id", "group", "type", "attempts", "dead_at", "error")
_NARROWING = ("type", "group", "error", "since", "before")


@click.group(cls=Group)
def dlq() -> None:
    """Dead letters: events that a consumer group gave up after its last retry.

    EVENT is an event's id. An event may be a dead letter of several groups: --group selects one.
    """


@dlq.command(
    "list",
    short_help="List them, the latest first.",
    examples="""
        cordata dlq list
        cordata dlq list --group shop.send_voucher --error TimeoutError --since 1d
        cordata dlq list --since 2026-01-31 --before 2026-01-31T12:00
        cordata dlq list --limit 200 --json
    """,
)
@choosing(*_NARROWING)
@paging
@operator_options
def list_(operator: Operator, choice: Choice, limit: int, after: str | None) -> int:
    """List dead letters, the latest first, with the kind of their last error.

    Payload and error text, which may contain personal data, are shown by `cordata dlq show`. The
    value of "next" in the JSON output is the POSITION of the next page.
    """

    async def act(ctx: Context) -> Page[DeadLetter]:
        wanted = choice.filter(ctx.now_us())
        return await DeadLetters(ctx.store).page(wanted, limit=limit, after=after)

    page = operator.run(act)
    show_page(
        [asdict(letter) for letter in page.items], _COLUMNS, next=page.next, json_=operator.json
    )
    return 0


@dlq.command(
    short_help="Show one with payload and history.",
    examples="""
        cordata dlq show 0190b2c4d5e67f8090a1b2c3d4e5f607
        cordata dlq show 0190b2c4d5e67f8090a1b2c3d4e5f607 --group shop.send_voucher --json
    """,
    exit_codes="0 done, 1 EVENT is not a dead letter",
)
@click.argument("event_id", metavar="EVENT")
@choosing("group")
@operator_options
def show(operator: Operator, event_id: str, choice: Choice) -> int:
    """Show an event's dead letters with its payload, and every attempt with its error."""
    letters = operator.run(lambda ctx: DeadLetters(ctx.store).find(event_id, group=choice.group))
    if not letters:
        raise unknown("dead letter of event", event_id)
    shown = [asdict(letter) for letter in letters]
    if not operator.json:
        for letter in shown:
            letter["history"] = [
                failure | {"owner": plain_name(str(failure.get("owner", "")))}
                for failure in letter["history"]
            ]
    show_records(shown, json_=operator.json)
    return 0


@dlq.command(
    short_help="Return them to their group.",
    examples="""
        cordata dlq replay 0190b2c4d5e67f8090a1b2c3d4e5f607
        cordata dlq replay --group shop.send_voucher --error TimeoutError
        cordata dlq replay --all
    """,
    exit_codes="0 done, 1 a named event is not a dead letter, 130 stopped by Ctrl-C",
)
@choosing("event_ids", *_NARROWING, "all")
@operator_options
def replay(operator: Operator, choice: Choice) -> int:
    """Return dead letters to the group that failed, with all its retries available again.

    Correct the cause of the failure first. Other groups of the event are not affected, the history
    stays, and effects that the group has committed are not repeated.
    """
    choice.check()
    return operator.act_on(
        "returned to their groups", choice, lambda ctx: DeadLetters(ctx.store).replay
    )


@dlq.command(
    examples="""
        cordata dlq drop 0190b2c4d5e67f8090a1b2c3d4e5f607 --group shop.send_voucher
        cordata dlq drop --type page.viewed --before 1w --yes
    """,
    exit_codes="""
        0 done, 1 a named event is not a dead letter, or not confirmed, 130 stopped by Ctrl-C
    """,
)
@choosing("event_ids", *_NARROWING, "all")
@yes_option
@operator_options
def drop(operator: Operator, choice: Choice, yes: bool) -> int:
    """Delete dead letters: their group never handles these events."""
    choice.check()
    confirm("Delete these dead letters permanently?", yes=yes)
    return operator.act_on("dropped", choice, lambda ctx: DeadLetters(ctx.store).drop)
