"""`cordata outbox list|show|retry|replay|purge`."""

from __future__ import annotations

from dataclasses import asdict

import click

from cordata.broker.inspection import Filter, Outbox, OutboxEvent, Page, Replayed
from cordata.cli.choice import Choice, choosing
from cordata.cli.operator import CommandResult, Operator, confirm, operator_options, unknown
from cordata.cli.options import paging, yes_option
from cordata.context import Context
from cordata.log import plural
from cordata.terminal import Counter, Group, Moment, moment, show_page, show_record

#: Why an event may be missing.
_DELETED = "events that all groups have handled are deleted after [engine] retention_s"
_COLUMNS = ("event_id", "type", "state", "priority", "created_at", "due_at", "handled_at")


@click.group(cls=Group)
def outbox() -> None:
    """Published events: list them, make them due, publish them again, delete those that are done.

    An event is pending until every consumer group of its type has handled it, relayed while it is
    on its way to a group through Redis, dead if a group gave it up and no other group still has to
    handle it, else done. Done events are deleted after [engine] retention_s. EVENT is an event's
    id.
    """


@outbox.command(
    "list",
    examples="""
        cordata outbox list
        cordata outbox list --state pending --before 5m
        cordata outbox list --type reservation.received --since 2026-01-31 --limit 200 --json
        cordata outbox list --group shop.send_voucher --state dead
    """,
)
@choosing("state", "type", "group", "since", "before")
@paging
@operator_options
def list_(operator: Operator, choice: Choice, limit: int, after: str | None) -> int:
    """List events, newest first, without their payload.

    --group selects events that this group has handled or still has to handle. --since and --before
    compare the time of publishing. The value of "next" in the JSON output is the POSITION of the
    next page.
    """

    async def act(ctx: Context) -> Page[OutboxEvent]:
        wanted = choice.filter(ctx.now_us())
        return await Outbox(ctx.store).page(wanted, limit=limit, after=after)

    page = operator.run(act)
    show_page(
        [asdict(entry) for entry in page.items], _COLUMNS, next=page.next, json_=operator.json
    )
    return 0


@outbox.command(
    examples="cordata outbox show 0190b2c4d5e67f8090a1b2c3d4e5f607",
    exit_codes="0 done, 1 no such event",
)
@click.argument("event_id", metavar="EVENT")
@operator_options
def show(operator: Operator, event_id: str) -> int:
    """Show one event with its payload, and its state in each group."""
    entry = operator.run(lambda ctx: Outbox(ctx.store).get(event_id))
    if entry is None:
        raise unknown("event", event_id)
    show_record(asdict(entry), json_=operator.json)
    return 0


@outbox.command(
    short_help="Make waiting events due now.",
    examples="""
        cordata outbox retry 0190b2c4d5e67f8090a1b2c3d4e5f607
        cordata outbox retry --type reservation.received --before 1h
    """,
    exit_codes="0 done, 1 a named event is not waiting, 130 stopped by Ctrl-C",
)
@choosing("event_ids", "type", "group", "since", "before", "all")
@operator_options
def retry(operator: Operator, choice: Choice) -> int:
    """Make events due now that wait for a retry, or that were published for a later time.

    Dead letters do not wait: use `cordata dlq replay` for them.
    """
    choice.check()
    return operator.act_on("due now", choice, lambda ctx: Outbox(ctx.store).retry)


@outbox.command(
    short_help="Publish events again.",
    examples="""
        cordata outbox replay --type order.made --since 2d
        cordata outbox replay --group shop.send_voucher --since 2026-01-31 --before 2026-02-01
        cordata outbox replay 0190b2c4d5e67f8090a1b2c3d4e5f607 --group shop.send_voucher --again
    """,
    exit_codes="0 done, 1 no such event, no such group, or not confirmed, 130 stopped by Ctrl-C",
)
@choosing("event_ids", "type", "since", "before", "all")
@click.option("--group", metavar="GROUP", help="To this consumer group only.")
@click.option(
    "--again", is_flag=True, help="With --group: also events it has handled; effects are repeated."
)
@yes_option
@operator_options
def replay(operator: Operator, choice: Choice, group: str | None, again: bool, yes: bool) -> int:
    """Publish events again, under the same event id, to the groups that handle their type now.

    Meant for groups that were added later: groups that have handled or claimed an event, or have it
    as a dead letter, do not get it again. With --again, one group also handles the events that it
    has handled: its mails, calls and other effects are repeated. What is not published again is
    counted, with the reason.
    """
    choice.check()
    if again and group is None:
        raise click.UsageError("--again is for one group: add --group GROUP")
    if again:
        confirm(f"Let {group} REPEAT the effects of all these events?", yes=yes)

    async def act(ctx: Context, counter: Counter) -> CommandResult:
        return await _replay(ctx, choice, group, again, counter)

    return operator.carry_out("checked", act)


async def _replay(
    ctx: Context, choice: Choice, group: str | None, again: bool, counter: Counter
) -> CommandResult:
    box, total, missing = Outbox(ctx.store), Replayed(), dict[str, str]()
    if choice.event_ids:
        for number, event_id in enumerate(choice.event_ids, start=1):
            one = await box.replay(Filter(event_id=event_id), group=group, again=again)
            total += one
            if not one.events:
                entry = await box.get(event_id)
                missing[event_id] = (
                    f"no such event; {_DELETED}"
                    if entry is None
                    else f"it is {entry.type}, which {group} does not handle"
                )
            counter(total.events, number / len(choice.event_ids))
    else:
        wanted = choice.filter(ctx.now_us())
        total = await box.replay(wanted, group=group, again=again, progress=counter)
    counts = asdict(total)
    return CommandResult(
        count=counts.pop("events"),
        missing=[*missing],
        reasons=missing,
        more=counts,
        note="" if missing and not total.events else f": {_described(total)}",
    )


def _described(total: Replayed) -> str:
    """What was published again, and why the rest was not."""
    if not total.events:
        return f"no event matches; {_DELETED}"
    reasons = [
        (total.handled, "handled already (--group GROUP --again repeats its effects)"),
        (total.waiting, "not handled yet (`cordata outbox list --state pending`)"),
        (total.dead, "given up as dead letters (`cordata dlq replay`)"),
    ]
    left = [f"{count:,} {reason}" for count, reason in reasons if count]
    if not total.messages and not left:
        return "no consumer group handles them; the primary registers new groups when it starts"
    return ", ".join([f"{plural(total.messages, 'message')} published again", *left])


@outbox.command(
    examples="""
        cordata outbox purge --before 1d
        cordata outbox purge --before 1h --type page.viewed --yes
    """,
    exit_codes="0 done, 1 not confirmed, 130 stopped by Ctrl-C",
)
@click.option(
    "--before",
    callback=moment,
    metavar="TIME",
    required=True,
    help="Handled before: 90s, 1h, 2d or 1w ago, or a date or time in UTC.",
)
@choosing("type")
@yes_option
@operator_options
def purge(operator: Operator, choice: Choice, before: Moment, yes: bool) -> int:
    """Delete events that all their groups handled before a time.

    Events that a group has not handled yet, or has as a dead letter, stay. Events older than
    [engine] retention_s are deleted automatically.
    """
    of_type = f" of type {choice.type}" if choice.type else ""
    confirm(f"Delete all events{of_type} handled before {before}?", yes=yes)

    async def act(ctx: Context, counter: Counter) -> CommandResult:
        now_us = ctx.now_us()
        wanted = choice.filter(now_us, before=before.us(now_us))
        return CommandResult(count=await Outbox(ctx.store).purge(wanted, progress=counter))

    return operator.carry_out("deleted", act)
