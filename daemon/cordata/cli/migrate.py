"""`cordata migrate [--check]`: runs or lists the migrations without starting a primary."""

from __future__ import annotations

from dataclasses import asdict

import click

from cordata.app_loader import load
from cordata.cli.operator import Operator, operator_options, run_in
from cordata.cli.options import app_option
from cordata.context import Context, runtime_store
from cordata.context_factory import groups_of
from cordata.services.primary import holder_name
from cordata.services.schema import migrate_once
from cordata.store import MigrationId
from cordata.terminal import Command, show_json


@click.command(
    cls=Command,
    examples="""
        cordata migrate --check
        systemctl stop primary && cordata migrate && systemctl start primary
    """,
    exit_codes="""
        0 the schema is current, 1 --check found pending migrations, or the command failed, 78 the
        schema does not fit this version of the program
    """,
)
@click.option("--check", is_flag=True, help="Only list pending migrations.")
@app_option
@operator_options
def migrate(operator: Operator, check: bool, app: str | None) -> int:
    """Bring the store's schema up to date and register the consumer groups, as the primary does
    at each start.

    If a primary runs, restart it instead: it holds the lease that migrations need.
    """
    loaded = load(operator.config, app)
    settings = operator.with_state_dir(loaded.config)

    async def act(ctx: Context) -> list[MigrationId]:
        if check:
            return await ctx.store.pending(ctx.chains)
        holder = f"{holder_name()} (cordata migrate)"
        lease = runtime_store(ctx).lease(holder=holder)
        groups = groups_of(loaded.config.broker, loaded.app.handlers)
        return await migrate_once(
            ctx, lease, groups, progress=lambda text: click.echo(text, err=True)
        )

    found = run_in(settings, loaded.app, act, need_schema=False)
    if operator.json:
        show_json({"pending" if check else "applied": [asdict(one) for one in found]})
    elif check:
        click.echo("\n".join(f"pending: {one}" for one in found) or "the schema is current")
    else:
        click.echo(f"{len(found)} applied; the schema is current")
    return 1 if check and found else 0
