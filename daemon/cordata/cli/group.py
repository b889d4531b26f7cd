"""`cordata group list|remove`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import click

from cordata.broker.inspection import count_messages, remove_group
from cordata.cli.operator import CommandResult, Operator, confirm, operator_options
from cordata.cli.options import yes_option
from cordata.context import Context
from cordata.metrics.backlog import NO_LIMIT, GroupBacklog, read_backlog
from cordata.terminal import Counter, Group, show_page

_COLUMNS = (
    *("group", "type", "broker", "ready", "scheduled", "claimed", "retrying", "dead"),
    *("oldest_s", "absent_s"),
)


@click.group(cls=Group)
def group() -> None:
    """Consumer groups: list them with their open messages, remove one.

    A group receives the events of its type from the first start of a worker with its handler until
    it is removed here, whether workers run or not. GROUP is its name, by default
    application.function.
    """


@group.command(
    "list",
    short_help="List them.",
    examples="""
        cordata group list
        cordata group list --json
    """,
)
@operator_options
def list_(operator: Operator) -> int:
    """List all groups, by name: their messages by state, for how many seconds the oldest one has
    been due (OLDEST S), and for how many no process has reported that it has the group (ABSENT S).
    Processes report it once a minute, so up to about 60 is normal.

    Ready and scheduled messages wait, retrying ones of these have failed before, claimed ones are
    with a worker. Messages in Redis count as ready until they are handled.
    """
    show_page([asdict(one) for one in _read(operator)], _COLUMNS, json_=operator.json)
    return 0


@group.command(
    short_help="Remove one that the code no longer declares.",
    examples="cordata group remove shop.send_voucher",
    exit_codes="0 done, 1 no such group, or not confirmed, 130 stopped by Ctrl-C",
)
@click.argument("name", metavar="GROUP")
@yes_option
@operator_options
def remove(operator: Operator, name: str, yes: bool) -> int:
    """Delete a group with its messages and dead letters, which are never handled then.

    First stop the workers that serve it: a worker that starts with its handler adds it again.
    """
    found = next((one for one in _read(operator) if one.group == name), None)
    if found is not None:
        confirm(_question(found), yes=yes)
    elif left := operator.run(lambda ctx: count_messages(ctx.store, name)):  # it was stopped before
        confirm(f"Delete the {left:,} messages of {name} permanently?", yes=yes)

    async def act(ctx: Context, counter: Counter) -> CommandResult:
        return CommandResult(count=await remove_group(ctx.store, name, progress=counter))

    return operator.carry_out("messages deleted", act)


def _read(operator: Operator) -> Sequence[GroupBacklog]:
    """All groups with all their messages."""
    found = operator.run(lambda ctx: ctx.store.read(lambda tx: read_backlog(tx, limit=NO_LIMIT)))
    return found.groups


def _question(found: GroupBacklog) -> str:
    open_count = found.ready + found.scheduled + found.claimed
    what = f"{open_count:,} events to handle and {found.dead:,} dead letters"
    return f"Remove {found.group} with {what} permanently?"
