"""`cordata job NAME`, which the service of a timer runs."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace

import click

from cordata import events, exit_codes
from cordata.app_loader import Loaded, load
from cordata.cli.options import shared, state_dir_option, with_state_dir
from cordata.command_context import become_owner
from cordata.context import Context
from cordata.context_factory import open_context, read_vault, store_password
from cordata.errors import ConfigError, CordataError, TransientError
from cordata.log import fields, logger
from cordata.metrics.series import context_series, job_series
from cordata.registry import JobTask
from cordata.services.job import JobResult, latest_run, run_job
from cordata.systemd import install_logging, set_level
from cordata.terminal import Command, printable, report, report_bug
from cordata.unhandled import install_hooks
from cordata.wiring.role import alerting, metrics_of

_SCHEMA_TRIES, _SCHEMA_PAUSE_S = 300, 0.2
#: Of several exit codes the first in this order wins: 69, since another try soon may succeed.
_WORST = (exit_codes.UNAVAILABLE, exit_codes.CONFIG, exit_codes.FAILED, exit_codes.BUSY, 0)


@click.command(
    cls=Command,
    examples="""
        cordata job daily-report
        cordata job daily-report portfolio-report
        cordata job daily-report --scope DEMO --period 2026-01-31 --force
        cordata job tally --app bookings:app --state-dir ./data
    """,
    epilog="""
        At the end, a line for each NAME says what ran, or that nothing was due. With --scope and
        --period the run is made whether it is due or not. If a job fails, the next one runs all the
        same.
    """,
    exit_codes="""
        0 all due runs are done, or none was due; 1 a run failed, the next call tries it again; 69 a
        run failed because a dependency is unavailable, for example the store: try again soon; 75
        another process runs one of them. With several jobs, the first that applies of 69, 78, 1,
        75, 0
    """,
)
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("--scope", help="Only this scope.")
@click.option("--period", help="Only this period; with --scope, even if it is not due.")
@click.option("--force", is_flag=True, help="With --scope and --period: run again even if done.")
@state_dir_option
@shared
def job(
    names: tuple[str, ...],
    scope: str | None,
    period: str | None,
    force: bool,
    state_dir: str | None,
    config: str | None,
    app: str | None,
    debug: bool,
) -> int:
    """Run each job NAME: each due (scope, period) once, however often and from wherever called."""
    names = tuple(dict.fromkeys(names))
    if len(names) > 1 and (scope is not None or period is not None or force):
        raise click.UsageError("--scope, --period and --force are for one job")
    install_logging("debug" if debug else "info", role=_role(names))
    install_hooks()

    loaded = load(config, app)
    loaded = replace(loaded, config=with_state_dir(loaded.config, state_dir))
    if not debug:
        set_level(loaded.config.log.level)
    for name in names:
        if name not in loaded.app.jobs:
            known = ", ".join(sorted(loaded.app.jobs)) or "none"
            raise ConfigError(f"the application has no job {name!r}", hint=f"it has: {known}")
    wanted = _Wanted(scope=scope, period=period, force=force)
    try:
        return asyncio.run(_run_each(loaded, names, wanted, debug=debug))
    except TransientError as error:
        report(error, debug=debug)
        return exit_codes.UNAVAILABLE
    except asyncio.CancelledError:
        # End by the signal: systemd counts SIGTERM of a service that it stops as a clean exit.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
        raise


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """The options that select the runs of a job."""

    scope: str | None
    period: str | None
    force: bool


def _role(names: tuple[str, ...]) -> str:
    return f"job {' '.join(names)}"


def _what_was_done(result: JobResult, *, force: bool) -> str:
    """The number of runs by result, as text; empty if there was none."""
    again = "" if force else " (again with --force)"
    counts = (
        (len(result.ran), "ran"),
        (len(result.failed), "failed (the next call tries again)"),
        (len(result.busy), "running in another process"),
        (len(result.done), f"done before{again}"),
    )
    return ", ".join(f"{count:,} {what}" for count, what in counts if count)


async def _why_nothing(ctx: Context, name: str, scope: str | None, *, has_due: bool) -> str:
    """The text for a call that found nothing to run."""
    if has_due and scope is None:
        return "nothing is due in any scope; --scope shows what ran last"
    latest = await latest_run(ctx, name, scope or "")
    where = f" for {scope}" if scope else ""
    if latest is None:
        return f"nothing is due{where}, and it has never run"
    period, state = latest
    one = f"--scope '{scope or ''}' --period {period}"
    return f"nothing is due{where}; {period} is {state} ({one} --force runs it again)"


async def _wait_for_schema(ctx: Context) -> None:
    """Wait up to a minute: at boot a timer may be due while the primary migrates. Raises:
    TransientError.
    """
    for attempt in range(_SCHEMA_TRIES):
        if await ctx.schema_current():
            return
        if attempt == 0:
            extra = fields(events.ROLE_WAITING)
            logger("cordata.job").info("waiting for the primary to migrate the store", extra=extra)
        await asyncio.sleep(_SCHEMA_PAUSE_S)
    raise TransientError(
        "the store's schema is not current",
        hint="start primary.service (or `cordata server`), which migrates it",
    )


async def _run_each(loaded: Loaded, names: tuple[str, ...], wanted: _Wanted, *, debug: bool) -> int:
    """Run the jobs one after another and print a line for each. Returns the exit code. Raises:
    TransientError if the store is unavailable.
    """
    current = asyncio.current_task()
    assert current is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, current.cancel)
    vault, password = read_vault(loaded.config), store_password(loaded.config)
    with alerting(loaded.config, _role(names), ends_soon=True):
        become_owner(loaded.config.paths.state)
        app, counted = loaded.app, context_series(loaded.app.commands)
        counted += [series for name in names for series in job_series(name)]
        metrics = metrics_of(loaded.config, f"job@{'+'.join(names)}", counted)
        async with open_context(
            loaded.config, app, vault=vault, password=password, metrics=metrics
        ) as ctx:
            await _wait_for_schema(ctx)
            codes = []
            for name in names:
                count = metrics.job(name) if metrics is not None else None
                codes.append(await _run_one(ctx, app.jobs[name], wanted, count, debug=debug))
            if metrics is not None:
                metrics.end()
    return min(codes, key=_WORST.index)


async def _run_one(
    ctx: Context,
    task: JobTask,
    wanted: _Wanted,
    count: Callable[[str, float], None] | None,
    *,
    debug: bool,
) -> int:
    """Run one job, and print what ran. Returns its exit code; an error is reported here, so that
    the next job runs.
    """
    try:
        result = await run_job(
            ctx,
            task,
            scope=wanted.scope,
            period=wanted.period,
            force=wanted.force,
            count=count,
        )
        said = _what_was_done(result, force=wanted.force)
        if not said:
            said = await _why_nothing(ctx, task.name, wanted.scope, has_due=task.due is not None)
    except TransientError as error:
        report(error, debug=debug)
        return exit_codes.UNAVAILABLE
    except CordataError as error:
        return report(error, debug=debug)
    except Exception as error:  # noqa: BLE001 - the boundary of one job
        return report_bug(error, debug=debug)
    click.echo(printable(f"{task.name}: {said}"))
    return result.exit_code
