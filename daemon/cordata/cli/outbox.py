"""`cordata outbox list|show|retry|replay|purge`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from cordata.cli.operator import Done, Operator, confirm, operator_options
from cordata.cli.options import Choice, choosing, paging, yes_option
from cordata.terminal import Counter, Moment, moment, show_page, show_record

if TYPE_CHECKING:
    from cordata.broker.inspection import OutboxEvent, Page
    from cordata.context import Context

_COLUMNS = ("event_id", "type", "state", "priority", "created_at", "due_at", "handled_at")


@click.group()
def outbox() -> None:
    """Events that were published: look, make due, publish again, delete what is done.

    An event is pending until every consumer group of its type has handled it. It is relayed while
    it is on its way to a group through Redis, dead when a group gave it up and no other one has it
    before it, else done; then it is kept for [engine] retention_s. EVENT is an event's id.
    """


@outbox.command(
    "list",
    short_help="List events, the newest first.",
    epilog="""Examples:

\b
  cordata outbox list
  cordata outbox list --state pending --before 5m
  cordata outbox list --type reservation.received --since 2026-01-31 --limit 200 --json
  cordata outbox list --group shop.send_voucher --state dead

Exit codes: 0 done, 1 --id names an event that is not there.""",
)
@choosing("state", "type", "group", "since", "before", "event_id")
@paging
@operator_options
def list_(operator: Operator, choice: Choice, limit: int, after: str | None) -> int:
    """List events, the newest first, without their payload.

    --group: those that this group has before it or has handled. --since and --before go by when the
    event was written. What `--json` prints as next is the POSITION of the next page.
    """
    from cordata.broker.inspection import Outbox

    async def act(ctx: Context) -> Page[OutboxEvent]:
        wanted = choice.filter(ctx.now_us())
        return await Outbox(ctx.store).page(wanted, limit=limit, after=after)

    page = operator.run(act)
    show_page(
        [asdict(entry) for entry in page.items], _COLUMNS, next=page.next, json_=operator.json
    )
    return 1 if choice.event_id and not page.items else 0


@outbox.command(
    short_help="Show one event with its payload.",
    epilog="""Example: cordata outbox show 0190b2c4d5e67f8090a1b2c3d4e5f607

Exit codes: 0 done, 1 there is no such event.""",
)
@click.argument("event_id", metavar="EVENT")
@operator_options
def show(operator: Operator, event_id: str) -> int:
    """Show one event with its payload, and what became of it in each group."""
    from cordata.broker.inspection import Outbox

    entry = operator.run(lambda ctx: Outbox(ctx.store).get(event_id))
    if entry is None:
        click.echo(f"error: no event {event_id} in the outbox", err=True)
        return 1
    show_record(asdict(entry), json_=operator.json)
    return 0


@outbox.command(
    short_help="Make due now what waits.",
    epilog="""Examples:

\b
  cordata outbox retry 0190b2c4d5e67f8090a1b2c3d4e5f607
  cordata outbox retry --type reservation.received --before 1h

Exit codes: 0 done, 1 an event that was named does not wait, 130 stopped by Ctrl-C.""",
)
@choosing("event_ids", "type", "group", "since", "before", "all")
@operator_options
def retry(operator: Operator, choice: Choice) -> int:
    """Make due now what waits for its time: after a failure, or because it was published for later.

    Dead letters do not wait: `cordata dlq replay` gives them back.
    """
    from cordata.broker.inspection import Filter, Outbox

    choice.check("--type, --group, --since, --before or --all")

    async def act(ctx: Context, counter: Counter) -> Done:
        box = Outbox(ctx.store)
        if choice.event_ids:
            count, missing = await counter.each(
                choice.event_ids, lambda one: box.retry(Filter(event_id=one))
            )
            return Done(count=count, missing=missing)
        return Done(count=await box.retry(choice.filter(ctx.now_us()), progress=counter))

    return operator.carry_out("due now", act)


@outbox.command(
    short_help="Publish events again.",
    epilog="""Examples:

\b
  cordata outbox replay --type order.made --since 2d
  cordata outbox replay --group shop.send_voucher --since 2026-01-31 --before 2026-02-01
  cordata outbox replay 0190b2c4d5e67f8090a1b2c3d4e5f607 --group shop.send_voucher --again

Exit codes: 0 done, 1 no such event, no such group, or not confirmed, 130 stopped by Ctrl-C.""",
)
@choosing("event_ids", "type", "since", "before", "all")
@click.option("--group", metavar="GROUP", help="To this consumer group only.")
@click.option(
    "--again", is_flag=True, help="With --group: also what it has handled, effects and all."
)
@yes_option
@operator_options
def replay(operator: Operator, choice: Choice, group: str | None, again: bool, yes: bool) -> int:
    """Publish events again, under the same event id, to the groups that handle their type now.

    Groups that have handled or claimed an event, or have it as a dead letter, are left alone: this
    is for groups that came later. --again has one group handle anew what it has handled: mails,
    calls and whatever else it did are done once more.
    """
    choice.check("--type, --since, --before or --all")
    if again and group is None:
        raise click.UsageError("--again is for one group: add --group GROUP")
    if again:
        confirm(f"Have {group} do ONCE MORE all that it has done for these events?", yes=yes)

    async def act(ctx: Context, counter: Counter) -> Done:
        return await _replay(ctx, choice, group, again, counter)

    return operator.carry_out("looked at", act)


async def _replay(
    ctx: Context, choice: Choice, group: str | None, again: bool, counter: Counter
) -> Done:
    from cordata.broker.inspection import Filter, Outbox, Replayed
    from cordata.log import plural

    box, total, missing = Outbox(ctx.store), Replayed(), list[str]()
    if choice.event_ids:
        for number, event_id in enumerate(choice.event_ids, start=1):
            one = await box.replay(Filter(event_id=event_id), group=group, again=again)
            total += one
            if not one.events:
                missing.append(event_id)
            counter(total.events, number / len(choice.event_ids))
    else:
        wanted = choice.filter(ctx.now_us())
        total = await box.replay(wanted, group=group, again=again, progress=counter)
    note = (
        f": {plural(total.messages, 'message')} published again, {total.left:,} left as they are"
        if total.events
        else ""
    )
    return Done(
        count=total.events,
        missing=missing,
        more={"messages": total.messages, "left": total.left},
        note=note,
    )


@outbox.command(
    short_help="Delete what is done.",
    epilog="""Examples:

\b
  cordata outbox purge --before 1d
  cordata outbox purge --before 1h --type page.viewed --yes

Exit codes: 0 done, 1 not confirmed, 130 stopped by Ctrl-C.""",
)
@click.option(
    "--before",
    callback=moment,
    metavar="TIME",
    required=True,
    help="Handled before then: 90s, 1h, 2d, 1w ago, or a date or time in UTC.",
)
@choosing("type")
@yes_option
@operator_options
def purge(operator: Operator, choice: Choice, before: Moment, yes: bool) -> int:
    """Delete events that all their groups had handled before a time.

    What a group has not handled yet, or has as a dead letter, stays. Retention deletes by itself
    what is older than [engine] retention_s.
    """
    from cordata.broker.inspection import Outbox

    of_type = f" of type {choice.type}" if choice.type else ""
    confirm(f"Delete all events{of_type} handled before {before}?", yes=yes)

    async def act(ctx: Context, counter: Counter) -> Done:
        now_us = ctx.now_us()
        wanted = choice.filter(now_us, before=before.us(now_us))
        return Done(count=await Outbox(ctx.store).purge(wanted, progress=counter))

    return operator.carry_out("deleted", act)
