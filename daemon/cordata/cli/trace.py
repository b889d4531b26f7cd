"""`cordata trace`: one request, from its acceptance to the last thing that it caused."""

from __future__ import annotations

import time
from dataclasses import asdict

import click

from cordata.cli.operator import NotFound, Operator, operator_options
from cordata.context import Context
from cordata.errors import CordataError
from cordata.log import with_hint
from cordata.operate import request_trace
from cordata.operate.request_trace import RequestTrace
from cordata.systemd.journal_reader import JournalReader
from cordata.terminal import Command, Moment, moment, show_json, show_table
from cordata.terminal.output import as_record

#: Longest id that is searched for; a traceparent is shorter.
_MAX_ID = 200


@click.command(
    cls=Command,
    examples="""
        cordata trace 0190b2c4d5e67f8090a1b2c3d4e5f607
        cordata trace order-4711 --since 2d --json
        cordata trace 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
    """,
    exit_codes="0 done, 1 nothing is known of it",
)
@click.argument("id_", metavar="ID")
@click.option(
    "--since",
    callback=moment,
    metavar="TIME",
    default="7d",
    show_default=True,
    help="Look back to: 90s, 30m, 1h, 2d or 1w ago, or a date or time in UTC.",
)
@operator_options
def trace(operator: Operator, id_: str, since: Moment) -> int:
    """Show what a request caused, in the order of time.

    ID is a request id (X-Request-ID of the response), an event's id, a trace id or a traceparent.
    Shown are events and what each consumer group did with them, mails, and the log lines of this
    host. Payloads, recipients and error texts are not shown: see `cordata outbox show`, `cordata
    dlq show` and `cordata mail show`.
    """
    # Every event without a request has the empty one; SQLite cannot search for a very long one.
    if not 0 < len(id_) <= _MAX_ID:
        raise click.BadParameter(f"it has 1 to {_MAX_ID} characters", param_hint="ID")
    # Before the store: this process may become its owner, who must not read the journal.
    reader, unreadable = None, None
    try:
        reader = JournalReader()
    except CordataError as error:
        unreadable = with_hint(error)

    async def act(ctx: Context) -> RequestTrace:
        return await request_trace.find_in_store(ctx.store, id_, since=since.us(ctx.now_us()))

    found = operator.run(act)
    if reader is not None:
        request_trace.find_in_journal(reader, id_, found, since=since.us(time.time_ns() // 1000))
    if not found.steps:
        where = "no event and no mail"
        where += (
            f"; the journal was not searched: {unreadable}" if unreadable else ", and no log line"
        )
        raise NotFound(
            f"nothing is known of {id_} since {since}: {where}",
            hint="look further back (--since 30d), in the log of other hosts, or in the output of"
            " `cordata server`, which is not in the journal. A request that published nothing has a"
            " log line only if it was refused or failed, or with [http] access_log = true",
        )
    if operator.json:
        show_json(
            {
                "request_ids": found.request_ids,
                "trace_ids": found.trace_ids,
                "steps": [
                    as_record({name: one for name, one in asdict(step).items() if one is not None})
                    for step in found.steps
                ],
                "more": found.more,
                "journal": unreadable,
            }
        )
        return 0
    for name, ids in (("request", found.request_ids), ("trace", found.trace_ids)):
        if ids:
            click.echo(f"{name} {', '.join(ids)}")
    show_table(request_trace.as_rows(found.steps), ("at", "after", "step", "what"))
    if found.more:
        click.echo(f"there is more: only {request_trace.MOST:,} are shown", err=True)
    if unreadable:
        click.echo(f"the log was not searched: {unreadable}", err=True)
    return 0
