"""`cordata scale` and `cordata drain`: the workers of this host."""

from __future__ import annotations

import asyncio
from dataclasses import asdict

import click

from cordata.cli.exclusive import exclusive
from cordata.operate.workers import drain as stop
from cordata.operate.workers import scale as change
from cordata.operate.workers import undo_drain, unit_of
from cordata.terminal import Command, Group, show_json, traceback_option


@click.group(cls=Group)
def scale() -> None:
    """Change how many processes of a kind this host has."""


@scale.command(
    short_help="Make N the number of workers, for good.",
    examples="""
        cordata scale workers 8
        cordata scale workers 2 --json
    """,
    exit_codes="0 done, 1 not all of it was done",
)
@click.argument("count", metavar="N", type=click.IntRange(1, 256))
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
@traceback_option
def workers(count: int, json_: bool) -> None:
    """Make N the number of workers of this host: worker@0 to worker@N-1; run it as root.

    Starts those that are missing; stops the others, which finish what they have begun. It lasts:
    the number is in /etc/systemd/system/workers.target.d/workers.conf, which upgrades keep. While a
    rolling restart is under way, it waits for its end.
    """
    with exclusive():
        done = asyncio.run(change(count))
    if json_:
        show_json(asdict(done))
        return
    for verb, units in (("started", done.started), ("stopped", done.stopped)):
        if units:
            click.echo(f"{verb}: {' '.join(units)}")
    noun = "worker" if count == 1 else "workers"
    later = "" if done.running else "; `systemctl start cordata.target` starts them"
    click.echo(f"this host has {count} {noun}{later}")


@click.command(
    cls=Command,
    examples="""
        cordata drain worker@2
        cordata drain worker@2 --undo
    """,
    exit_codes="0 done, 1 not drained, or not started again",
)
@click.argument("worker", metavar="worker@N")
@click.option("--undo", is_flag=True, help="Start it again.")
@traceback_option
def drain(worker: str, undo: bool) -> None:
    """Take a worker out of service: it finishes what it has begun and ends; run it as root.

    Others serve meanwhile; the last one cannot be drained. It starts again with --undo, with
    cordata.target and at a reboot; `cordata scale` changes the number for good. While a rolling
    restart is under way, it waits for its end.
    """
    unit = unit_of(worker)
    if unit is None:
        raise click.BadParameter("must be the name of a worker, as worker@2")
    with exclusive():
        asyncio.run(undo_drain(unit) if undo else stop(unit))
    click.echo(f"{unit} {'serves again' if undo else 'is drained: it has finished, and ended'}")
