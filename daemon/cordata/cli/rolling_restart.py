"""`cordata rolling-restart`: restarts primary and workers one by one."""

from __future__ import annotations

import asyncio
from dataclasses import asdict

import click

from cordata import exit_codes
from cordata.cli.exclusive import exclusive
from cordata.cli.options import debug_option
from cordata.operate.rolling_restart import (
    RemovalPending,
    Restarted,
    RestartError,
    check_before,
    refresh_network,
    restart_one_by_one,
)
from cordata.terminal import Command, config_option, printable, report, show_json


@click.command(
    cls=Command,
    examples="""
        cordata rolling-restart
        cordata rolling-restart --timeout 30
    """,
    exit_codes="""
        0 all are restarted and ready, 1 nothing was restarted, or one is not ready again: the
        others still run as before, 3 nothing was restarted: a pending migration removes something
    """,
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=1),
    default=180.0,
    show_default=True,
    metavar="SECONDS",
    help="Longest time for one process to stop and to be ready again.",
)
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
@config_option
@debug_option
def rolling_restart(timeout_s: float, json_: bool, config: str | None, debug: bool) -> int:
    """Restart the primary, then the workers, one by one; run it as root.

    A worker finishes what it has begun while the others serve. The next one is restarted when it is
    ready again (READY=1); the first one that is not ends the command, with its last log lines.

    Nothing is restarted if the configuration is invalid, if the store is unavailable, or if a
    pending migration removes what the running workers use. While another rolling restart, or a
    `cordata scale` or `cordata drain`, is under way, this one waits for its end.
    """
    done: list[Restarted] = []

    def note(restarted: Restarted) -> None:
        done.append(restarted)
        if not json_:
            click.echo(
                f"{restarted.unit:<17} ready after {restarted.seconds:.1f} s, "
                f"pid {restarted.pid} (was {restarted.former_pid})"
            )

    async def run() -> None:
        await check_before(config)
        await refresh_network(config)
        await restart_one_by_one(timeout_s=timeout_s, on_restart=note)

    try:
        with exclusive():
            asyncio.run(run())
    except RemovalPending as error:
        report(error, debug=debug)
        return exit_codes.REMOVAL_PENDING
    except RestartError as error:
        if error.log:
            click.echo("\n".join(map(printable, error.log.splitlines())), err=True)
        raise
    finally:
        if json_:
            show_json({"restarted": [asdict(one) for one in done]})
    return 0
