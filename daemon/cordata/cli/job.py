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

At the end a line says what was done, or that nothing was due. A run that --scope and --period name
is done whether it is due or not.

Exit codes: 0 all that was due has run, or nothing was; 1 a run failed, the next call tries it
again; 75 another process has a run in hand."""
)
@click.argument("name")
@click.option("--scope", help="Only this scope.")
@click.option("--period", help="Only this period; with --scope: this run, due or not.")
@click.option(
    "--force", is_flag=True, help="With --scope and --period: run it again if it is done."
)
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
    from cordata.systemd import install_hooks, install_logging, set_level

    install_logging("debug" if debug else "info", role=f"job {name}")
    install_hooks()

    from cordata.loading import load

    loaded = load(config, app)
    if not debug:
        set_level(loaded.config.log.level)
    if name not in loaded.app.jobs:
        known = ", ".join(sorted(loaded.app.jobs)) or "none"
        raise ConfigError(f"the application has no job {name!r}", hint=f"it has: {known}")
    try:
        result, said = asyncio.run(_run(loaded, name, scope, period, force))
    except asyncio.CancelledError:
        # Die of the signal, as the manager expects of a service that it stops.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
        raise
    click.echo(f"{name}: {said}")
    return result.exit_code


def _what_was_done(result: JobResult, *, force: bool) -> str:
    """How many runs ended how; empty when there was none."""
    again = "" if force else " (again with --force)"
    counts = (
        (len(result.ran), "ran"),
        (len(result.failed), "failed (the next call tries again)"),
        (len(result.busy), "in the hands of another process"),
        (len(result.done), f"done before{again}"),
    )
    return ", ".join(f"{count:,} {what}" for count, what in counts if count)


async def _why_nothing(ctx: Context, name: str, scope: str | None, *, has_due: bool) -> str:
    """For a call that found nothing to run."""
    from cordata.services.job import latest_run

    if has_due and scope is None:
        return "nothing is due in any scope; with --scope it says what ran last"
    latest = await latest_run(ctx, name, scope or "")
    where = f" for {scope}" if scope else ""
    if latest is None:
        return f"nothing is due{where}, and nothing ever ran"
    period, state = latest
    one = f"--scope '{scope or ''}' --period {period}"
    return f"nothing is due{where}; {period} is {state} ({one} --force runs it again)"


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
) -> tuple[JobResult, str]:
    """What the call did, for programs and for people."""
    from cordata.connection import become_owner
    from cordata.opening import open_context, read_vault, store_password
    from cordata.services.job import run_job
    from cordata.wiring.role import alerting

    current = asyncio.current_task()
    assert current is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, current.cancel)
    vault, password = read_vault(loaded.config), store_password(loaded.config)
    with alerting(loaded.config, f"job {name}", ends_soon=True):
        become_owner(loaded.config.paths.state)
        async with open_context(loaded.config, loaded.app, vault=vault, password=password) as ctx:
            await _wait_for_schema(ctx)
            task = loaded.app.jobs[name]
            result = await run_job(
                ctx,
                task,
                runtime_dir=loaded.config.paths.runtime,
                scope=scope,
                period=period,
                force=force,
            )
            said = _what_was_done(result, force=force)
            said = said or await _why_nothing(ctx, name, scope, has_due=task.due is not None)
            return result, said
