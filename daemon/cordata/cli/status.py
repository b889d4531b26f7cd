"""`cordata status`: one screen of all that runs and waits, with the reasons when it is not well."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from cordata.app_loader import salvage
from cordata.cli.operator import Operator, operator_options
from cordata.config import find_file
from cordata.status.collect import collect
from cordata.status.judge import Reason, judge, worst
from cordata.status.snapshot import Snapshot
from cordata.status.tables import Table, document, lines, tables
from cordata.terminal import Command, printable, show_json
from cordata.terminal.output import draw_table, show_drawing

if TYPE_CHECKING:
    from rich.console import Group

    Look = Callable[[], Awaitable[Snapshot]]

EXIT_CODES = {"healthy": 0, "degraded": 1, "down": 2}
_COLOURS = {"healthy": "green", "degraded": "yellow", "down": "red"}
_REDRAW_S = 2.0


@click.command(
    cls=Command,
    examples="""
        cordata status
        cordata status --watch
        cordata status --json | jq .reasons
        cordata status --state-dir ./data
    """,
    exit_codes="""
        0 healthy, 1 degraded (it serves, but somebody should look), 2 down, or wrong usage
    """,
)
@click.option("--watch", is_flag=True, help="Draw it again every 2 s, until Ctrl-C.")
@operator_options
def status(operator: Operator, watch: bool) -> int:
    """Show units, primary, requests, groups, pool, jobs, mail, alerts, store and disk, and judge
    them.

    The first line is healthy, degraded or down; the next ones are the reasons, each with a command
    where there is one. A part that does not answer within 5 s says so. Without systemd
    (`cordata server`) there are no units: the processes are those that have joined the store.
    Requests, and messages handled by the workers of this host, are those of the last 10 to 15 s:
    errors are answers with 5xx. Counts of messages and mails end at 10,000. On a server,
    run it as root.

    --json prints `state`, `reasons` (each with `state`, `part`, `text`) and the parts: `units`,
    `processes`, `primary`, `http`, `groups`, `handled`, `redis_away`, `blocked`, `jobs`,
    `mail`, `alerts`, `store`, `pool`, `disk`, and in `errors` why one is missing. Names end with
    their unit: `_s` seconds, `_bytes`.
    """
    if watch and (operator.json or not sys.stdout.isatty()):
        raise click.UsageError("--watch needs a terminal, and cannot be combined with --json")
    problems: list[str] = []
    config = operator.with_state_dir(salvage(find_file(operator.config), problems.append))
    look = partial(collect, config, problems, with_units=operator.state_dir is None)
    if watch:
        with suppress(KeyboardInterrupt):
            asyncio.run(_watch(look))
        return 0
    return asyncio.run(_show(look, json=operator.json))


async def _show(look: Look, *, json: bool) -> int:
    snapshot = await look()
    reasons = judge(snapshot)
    if json:
        show_json(document(snapshot, reasons))
    else:
        show_drawing(screen(snapshot, reasons))
    return EXIT_CODES[worst(reasons)]


async def _watch(look: Look) -> None:
    from rich.live import Live

    with Live(auto_refresh=False, screen=True) as live:
        while True:
            snapshot = await look()
            live.update(screen(snapshot, judge(snapshot)), refresh=True)
            await asyncio.sleep(_REDRAW_S)


def screen(snapshot: Snapshot, reasons: Sequence[Reason]) -> Group:
    """All of it, as rich draws it."""
    from rich.console import Group
    from rich.text import Text

    state = worst(reasons)
    where = f"   cordata {snapshot.version} on {snapshot.host}"
    parts: list[Any] = [Text.assemble((state, f"bold {_COLOURS[state]}"), printable(where))]
    for reason in reasons:
        line = (f"  {reason.state:<9}", _COLOURS[reason.state])
        parts.append(Text.assemble(line, printable(f"{reason.part}: {reason.text}")))
    for table in tables(snapshot):
        parts += [Text(""), _drawn(table)]
    found = lines(snapshot).items()
    parts += [Text(""), *(Text(printable(f"{part:<10}{text}")) for part, text in found)]
    return Group(*parts)


def _drawn(table: Table) -> Any:
    """The table, as rich draws it; numbers are aligned."""
    columns = range(len(table.heads))
    right = {one for one in columns if all(isinstance(row[one], int) for row in table.rows)}
    rows = ([printable(str(value)) for value in row] for row in table.rows)
    return draw_table(table.heads, rows, whole={0, *right}, right=right)
