"""`cordata status`: one screen of all that runs and waits, with the reasons when it is not well."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from cordata.cli.operator import Operator, operator_options
from cordata.terminal import printable, show_json

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

    from cordata.metrics.rate import HttpRate
    from cordata.status.judge import Reason
    from cordata.status.snapshot import (
        AlertState,
        GroupState,
        JobState,
        PoolState,
        ProcessState,
        Snapshot,
        UnitState,
    )

    Look = Callable[[], Awaitable[Snapshot]]

EXIT_CODES = {"healthy": 0, "degraded": 1, "down": 2}
_COLOURS = {"healthy": "green", "degraded": "yellow", "down": "red"}
_REDRAW_S = 2.0
#: Wide enough for every line where there is no terminal.
_NO_WRAP_WIDTH = 1000


@click.command(
    epilog="""Examples:

\b
  cordata status
  cordata status --watch
  cordata status --json | jq .reasons
  cordata status --state-dir ./data

Exit codes: 0 healthy, 1 degraded (it serves, but somebody should look), 2 down, or wrong usage."""
)
@click.option("--watch", is_flag=True, help="Draw it again every 2 s, until Ctrl-C.")
@operator_options
def status(operator: Operator, watch: bool) -> int:
    """Show units, primary, requests, groups, pool, jobs, mail, alerts, store and disk, and judge
    them.

    The first line is healthy, degraded or down; the next ones are the reasons, each with a command
    where there is one. A part that does not answer within 5 s says so. Without systemd
    (`cordata server`) there are no units: the processes are those that have joined the store.
    Requests are those of the last 10 to 15 s, by worker: errors are answers with 5xx. Run it as
    root, or as the user of the service.

    --json prints `state`, `reasons` (each with `state`, `part`, `text`) and the parts: `units`,
    `processes`, `primary`, `http`, `groups`, `blocked`, `jobs`, `mail`, `alerts`, `store`, `pool`,
    `disk`, and in `errors` why one is missing. Names end with their unit: `_s` seconds, `_bytes`.
    """
    from cordata.app_loader import salvage
    from cordata.config import find_file
    from cordata.status.collect import collect

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
    from cordata.status.judge import judge, worst

    snapshot = await look()
    reasons = judge(snapshot)
    if json:
        found = [asdict(one) for one in reasons]
        show_json({"state": worst(reasons), "reasons": found, **_rounded(asdict(snapshot))})
    else:
        _print(screen(snapshot, reasons))
    return EXIT_CODES[worst(reasons)]


async def _watch(look: Look) -> None:
    from rich.live import Live

    from cordata.status.judge import judge

    with Live(auto_refresh=False, screen=True) as live:
        while True:
            snapshot = await look()
            live.update(screen(snapshot, judge(snapshot)), refresh=True)
            await asyncio.sleep(_REDRAW_S)


def _print(page: Group) -> None:
    from rich.console import Console

    if sys.stdout.isatty():
        Console(highlight=False).print(page)
        return
    console = Console(width=_NO_WRAP_WIDTH, force_terminal=False, color_system=None)
    with console.capture() as captured:
        console.print(page)
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


def screen(snapshot: Snapshot, reasons: Sequence[Reason]) -> Group:
    """All of it, as rich draws it."""
    from rich.console import Group
    from rich.text import Text

    from cordata.status.judge import worst

    state = worst(reasons)
    where = f"   cordata {snapshot.version} on {snapshot.host}"
    parts: list[Any] = [Text.assemble((state, f"bold {_COLOURS[state]}"), printable(where))]
    for reason in reasons:
        line = (f"  {reason.state:<9}", _COLOURS[reason.state])
        parts.append(Text.assemble(line, printable(f"{reason.part}: {reason.text}")))
    for table in _tables(snapshot):
        if table.row_count:
            parts += [Text(""), table]
    parts += [Text(""), *(Text(printable(line)) for line in _lines(snapshot))]
    return Group(*parts)


def _tables(snapshot: Snapshot) -> list[Table]:
    timers = [unit for unit in snapshot.units if unit.unit.endswith(".timer")]
    others = [unit for unit in snapshot.units if not unit.unit.endswith(".timer")]
    # Processes of this host that are units are in the first table.
    elsewhere = [
        one for one in snapshot.processes if not snapshot.systemd or one.host != snapshot.host
    ]
    heads = ("UNIT STATE UP RESTARTS MEMORY WATCHDOG SAYS", "PROCESS HOST PID STATE")
    return [
        _table(heads[0], map(_unit, others)),
        _table(heads[1], map(_process, elsewhere)),
        _table("HTTP REQ/S IN-FLIGHT P50 P99 ERRORS/S", map(_http, snapshot.http)),
        _table("GROUP READY SCHEDULED CLAIMED RETRYING DEAD OLDEST", map(_group, snapshot.groups)),
        _table("WORKER POOL READY BUSY OTHER WAITING CRASHED", map(_pool, snapshot.pool)),
        _table("JOB SCOPE PERIOD STATE ATTEMPTS STARTED", map(_job, snapshot.jobs)),
        _table("TIMER STATE NEXT LAST", map(_timer, timers)),
        _table("ALERT COUNT LAST", map(_alert, snapshot.alerts)),
    ]


Row = Sequence[object]


def _process(one: ProcessState) -> Row:
    return one.name, one.host, one.pid, "alive" if one.alive else "gone"


def _http(one: HttpRate) -> Row:
    times = (_milliseconds(one.p50_ms), _milliseconds(one.p99_ms))
    return one.unit, _rate(one.requests_per_s), one.in_flight, *times, _rate(one.errors_per_s)


def _group(one: GroupState) -> Row:
    counts = (one.ready, one.scheduled, one.claimed, one.retrying, one.dead)
    return one.group, *counts, _span(one.oldest_s)


def _pool(one: PoolState) -> Row:
    worker = f"{one.worker} (drained)" if one.drained else one.worker
    return worker, one.pool, one.ready, one.busy, one.other, one.waiting, one.crashed


def _job(one: JobState) -> Row:
    return one.job, one.scope, one.period, one.state, one.attempts, _ago(one.started_s)


def _timer(one: UnitState) -> Row:
    due = "" if one.next_s is None else f"in {_span(one.next_s)}"
    return one.unit, one.state, due, _ago(one.last_s)


def _alert(one: AlertState) -> Row:
    return one.title, one.count, _ago(one.last_s)


def _unit(unit: UnitState) -> Row:
    state = unit.state if unit.state == "active" else f"{unit.state} ({unit.sub_state})"
    memory = "" if unit.memory_bytes is None else _size(unit.memory_bytes)
    watchdog = "" if unit.watchdog_age_s is None else f"{unit.watchdog_age_s:.1f} s"
    return unit.unit, state, _span(unit.up_s), unit.restarts, memory, watchdog, unit.status


def _lines(snapshot: Snapshot) -> list[str]:
    """What needs no table."""
    lines = []
    if (primary := snapshot.primary) is not None:
        ended = ", given up" if primary.released else ", ended" if primary.gone else ""
        since = f"term {primary.term}, since {_span(primary.since_s)}"
        lines.append(f"primary   {primary.holder}{ended}, {since}")
    if (mail := snapshot.mail) is not None:
        oldest = f", the oldest {_span(mail.oldest_s)}" if mail.oldest_s is not None else ""
        server = "" if mail.configured else "; no mail server is configured"
        lines.append(f"mail      {mail.waiting} wait{oldest}; {mail.failed} failed{server}")
    if (store := snapshot.store) is not None:
        log = ""
        if store.wal_bytes is not None and store.wal_limit_bytes is not None:
            log = f", write-ahead log {_size(store.wal_bytes)} of {_size(store.wal_limit_bytes)}"
        lines.append(f"store     {store.database}{log}")
    if (disk := snapshot.disk) is not None:
        free = f"{_size(disk.free_bytes)} of {_size(disk.total_bytes)} free"
        lines.append(f"disk      {free} for {disk.path}")
    return lines


def _table(heads: str, found: Iterable[Row]) -> Table:
    from rich.table import Table
    from rich.text import Text

    rows = list(found)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for number, head in enumerate(heads.split()):
        right = bool(rows) and all(isinstance(row[number], int) for row in rows)
        table.add_column(head, justify="right" if right else "left", no_wrap=number == 0)
    for row in rows:
        table.add_row(*(Text(printable(str(value))) for value in row))
    return table


def _size(count: int) -> str:
    from cordata.doctor.judge import size

    return size(count)


def _rate(per_s: float) -> str:
    """Rounded; a rate that is not 0 is not shown as 0."""
    return f"{per_s:.0f}" if per_s >= 10 or not per_s else f"{per_s:.2f}"


def _milliseconds(number: float | None) -> str:
    return "" if number is None else f"{number:.1f} ms"


def _ago(seconds: float | None) -> str:
    return "" if seconds is None else f"{_span(seconds)} ago"


def _span(seconds: float | None) -> str:
    """A duration with its largest unit: 12 s, 3 min, 5 h, 9 d."""
    if seconds is None:
        return ""
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def _rounded(value: Any) -> Any:
    """The same with floats of three digits."""
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(one) for one in value]
    return value
