"""`cordata group list|remove`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from cordata.cli.operator import CommandResult, Operator, confirm, operator_options
from cordata.cli.options import yes_option
from cordata.terminal import Counter, show_page

if TYPE_CHECKING:
    from cordata.broker.inspection import Group
    from cordata.context import Context

_COLUMNS = (
    *("group", "type", "broker", "ready", "scheduled", "claimed", "dead"),
    *("registered_at", "present_at"),
)


@click.group()
def group() -> None:
    """Consumer groups: list them with their open messages, remove one.

    A group receives the events of its type from the first start of a worker with its handler until
    it is removed here, whether workers run or not. GROUP is its name, by default
    application.function.
    """


@group.command(
    "list",
    short_help="List them.",
    epilog="""Examples:

\b
  cordata group list
  cordata group list --json""",
)
@operator_options
def list_(operator: Operator) -> int:
    """List all groups, by name: their messages by state, and when a process last served them.

    Ready and scheduled messages wait, claimed ones are with a worker. For a group that receives its
    events through Redis, the messages in its stream are not counted.
    """
    from cordata.broker.inspection import Groups

    found = operator.run(lambda ctx: Groups(ctx.store).read())
    show_page([asdict(one) for one in found], _COLUMNS, next=None, json_=operator.json)
    return 0


@group.command(
    short_help="Remove one that the code no longer declares.",
    epilog="""Example: cordata group remove shop.send_voucher

Exit codes: 0 done, 1 no such group, or not confirmed, 130 stopped by Ctrl-C.""",
)
@click.argument("name", metavar="GROUP")
@yes_option
@operator_options
def remove(operator: Operator, name: str, yes: bool) -> int:
    """Delete a group with its messages and dead letters, which are never handled then.

    First stop the workers that serve it: a worker that starts with its handler adds it again.
    """
    from cordata.broker.inspection import Groups

    found = operator.run(lambda ctx: Groups(ctx.store).read(name))
    if found:
        confirm(_question(found[0]), yes=yes)

    async def act(ctx: Context, counter: Counter) -> CommandResult:
        return CommandResult(count=await Groups(ctx.store).remove(name, progress=counter))

    return operator.carry_out("messages deleted", act)


def _question(found: Group) -> str:
    open_count = found.ready + found.scheduled + found.claimed
    what = f"{open_count:,} events to handle and {found.dead:,} dead letters"
    return f"Remove {found.group} with {what} permanently?"
