"""`cordata job NAME`: what a timer's service runs."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING

import click

from cordata import events
from cordata.cli.options import shared
from cordata.errors import ConfigError, CordataError
from cordata.log import fields, logger

if TYPE_CHECKING:
    from cordata.context import Context
    from cordata.loading import Loaded
    from cordata.services.job import JobResult

_SCHEMA_TRIES, _SCHEMA_PAUSE_S = 300, 0.2


@click.command(
    epilog="""Examples:

\b
  cordata job daily-report
  cordata job daily-report --scope DEMO --period 2026-01-31 --force

Exit codes: 0 all that was due has run, or nothing was; 1 a run failed, the next call tries it
again; 75 another process has a run in hand."""
)
@click.argument("name")
@click.option("--scope", help="Only this scope.")
@click.option("--period", help="Only this period; with --scope: this run, due or not.")
@click.option("--force", is_flag=True, help="Run again what is done.")
@shared
def job(
    name: str,
    scope: str | None,
    period: str | None,
    force: bool,
    config: str | None,
    app: str | None,
    debug: bool,
) -> int:
    """Run the job NAME: each due (scope, period) once, whoever calls, however often."""
    from cordata.systemd import install_logging, set_level

    install_logging("debug" if debug else "info", role=f"job {name}")

    from cordata.loading import load

    loaded = load(config, app)
    if not debug:
        set_level(loaded.config.log.level)
    if name not in loaded.app.jobs:
        known = ", ".join(sorted(loaded.app.jobs)) or "none"
        raise ConfigError(f"the application has no job {name!r}", hint=f"it has: {known}")
    try:
        result = asyncio.run(_run(loaded, name, scope, period, force))
    except asyncio.CancelledError:
        # Die of the signal, as the manager expects of a service that it stops.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
        raise
    return result.exit_code


async def _wait_for_schema(ctx: Context) -> None:
    """A timer may be due at boot, while the primary still migrates. Raises: CordataError."""
    for attempt in range(_SCHEMA_TRIES):
        if await ctx.schema_current():
            return
        if attempt == 0:
            extra = fields(events.WORKER_WAITING)
            logger("cordata.job").info("waiting for the primary to migrate the store", extra=extra)
        await asyncio.sleep(_SCHEMA_PAUSE_S)
    raise CordataError(
        "the store's schema is not current", hint="start primary.service, which migrates it"
    )


async def _run(
    loaded: Loaded, name: str, scope: str | None, period: str | None, force: bool
) -> JobResult:
    from cordata.connection import become_owner
    from cordata.opening import open_context, read_vault, store_password
    from cordata.services.job import run_job

    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    vault, password = read_vault(loaded.config), store_password(loaded.config)
    become_owner(loaded.config.paths.state)
    async with open_context(loaded.config, loaded.app, vault=vault, password=password) as ctx:
        await _wait_for_schema(ctx)
        return await run_job(
            ctx,
            loaded.app.jobs[name],
            runtime_dir=loaded.config.paths.runtime,
            scope=scope,
            period=period,
            force=force,
        )
