"""`cordata logs`: the journal of the units, as lines like those of `cordata server`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict
from itertools import chain

import click

from cordata.systemd.journal_reader import LEVELS, JournalEntry, JournalFilter, JournalReader
from cordata.terminal import Command, Moment, moment, printable, show_json

_LINES = 100
_COLOURS = {"warning": "yellow", "error": "red", "critical": "bright_red"}


@click.command(
    cls=Command,
    examples="""
        cordata logs -f
        cordata logs --worker 0 --worker 1 --since 10m
        cordata logs --level warning --since 2026-01-31T08:00
        cordata logs --request 4f1c2a90d8e14a7b --json
    """,
    exit_codes="0 done, 1 this host has no journal that you may read, 130 ended by Ctrl-C",
)
@click.option("-f", "--follow", is_flag=True, help="Go on with new entries, until Ctrl-C.")
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(1, 1_000_000),
    help=f"Entries at most, the last ones.  [default: {_LINES}; with --since or --request: all]",
)
@click.option(
    "--worker", "workers", type=click.IntRange(0), multiple=True, help="Only of this worker."
)
@click.option("--primary", is_flag=True, help="Only of the primary.")
@click.option("--unit", "units", multiple=True, help="Only of this unit, such as job@cleanup.")
@click.option("--request", "request_id", metavar="ID", help="Only of this request.")
@click.option(
    "--level",
    type=click.Choice(LEVELS),
    default="debug",
    show_default=True,
    help="Only of this severity and above.",
)
@click.option(
    "--since",
    callback=moment,
    metavar="TIME",
    help="Since: 90s, 30m, 1h, 2d or 1w ago, or a date or time in UTC.",
)
@click.option("--json", "json_", is_flag=True, help="Print one JSON object a line.")
def logs(
    follow: bool,
    lines: int | None,
    workers: tuple[int, ...],
    primary: bool,
    units: tuple[str, ...],
    request_id: str | None,
    level: str,
    since: Moment | None,
    json_: bool,
) -> None:
    """Show the log of all units of the runtime on this host, and systemd's lines about them.

    One line is time (UTC), level, unit, area, message and the id of the request. A client finds
    the id of its request in the header X-Request-ID of the response. journalctl shows the same
    with all fields: `journalctl -u 'worker@*' -o verbose`.
    """
    if request_id == "":  # else it would be the log of all requests
        raise click.UsageError("the ID of --request is empty")
    names = [f"worker@{number}.service" for number in workers]
    names += ["primary.service"] * primary
    names += [unit if "." in unit else f"{unit}.service" for unit in units]
    any_of = {"REQUEST_ID": [request_id]} if request_id else {}
    reader = JournalReader()
    reader.select(JournalFilter(units=names, any_of=any_of, level=level))
    if since is not None:
        entries = reader.since(since.us(time.time_ns() // 1000))
    elif request_id and lines is None:
        entries = reader.since(0)
    else:
        entries = reader.last(lines or _LINES)
    if since is not None and lines is not None:
        entries = _last(entries, lines)
    for entry in chain(entries, reader.follow() if follow else ()):
        if json_:
            at = entry.at.isoformat(timespec="microseconds")
            show_json(asdict(entry) | {"at": at}, one_line=True)
        else:
            click.echo(_line(entry))


def _last(entries: Iterator[JournalEntry], count: int) -> Iterator[JournalEntry]:
    from collections import deque

    return iter(deque(entries, maxlen=count))


def _line(entry: JournalEntry) -> str:
    """As `cordata server` writes it; line breaks of the message continue indented."""
    at = entry.at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{entry.at.microsecond // 1000:03d}Z"
    area = entry.logger.removeprefix("cordata.")
    area = f" {area}:" if area else ":"
    message = "\n    ".join(printable(line) for line in entry.message.splitlines())
    line = f"{at} {entry.level.upper():<8} {entry.unit}{area} {message}"
    if entry.request_id and entry.request_id not in entry.message:
        line += f" ({printable(entry.request_id)})"
    colour = _COLOURS.get(entry.level)
    return click.style(line, fg=colour) if colour else line
