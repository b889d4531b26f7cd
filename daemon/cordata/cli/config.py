"""`cordata config check` and `cordata config show`."""

from __future__ import annotations

import os

import click

from cordata.app_loader import Loaded, load
from cordata.cli.operator import run_in
from cordata.cli.options import app_option
from cordata.config.show import lines
from cordata.context import Context
from cordata.context_factory import check_start, missing_state
from cordata.errors import CordataError
from cordata.systemd import Credentials
from cordata.terminal import Group, config_option, traceback_option


@click.group(cls=Group)
def config() -> None:
    """Check or show the configuration."""


@config.command(
    examples="""
        cordata config check
        cordata config check --config ./cordata.toml && systemctl reload 'worker@*'
    """,
)
@config_option
@app_option
@traceback_option
def check(config: str | None, app: str | None) -> int:
    """Check the file, the application and what it registers. Exit code 78: all problems are named.

    Warns of problems that the application finds in the store, for example secrets of the hub that
    this master-key cannot open.
    """
    loaded = load(config, app)
    check_start(loaded.config, loaded.app)
    if (state := missing_state(loaded.config)) is not None:
        click.echo(f"note: [paths] state {state} does not exist; the service creates it", err=True)
    else:
        _check_store(loaded)
    click.echo(f"{loaded.document.path or 'defaults (no file)'}: ok")
    return 0


def _check_store(loaded: Loaded) -> None:
    """Print a warning for each problem that the application's checks find. If the store cannot be
    opened, print a note: the configuration may be correct all the same.
    """
    # A user who may not read the secrets cannot check them.
    if not loaded.app.checks or not os.access(loaded.config.paths.credentials, os.R_OK | os.X_OK):
        return

    async def ask(ctx: Context) -> list[str]:
        return [text for check in loaded.app.checks for text in await check(ctx)]

    try:
        found = run_in(loaded.config, loaded.app, ask)
    except CordataError as error:
        click.echo(f"note: the store was not checked: {error}", err=True)
        return
    for text in found:
        click.echo(f"warning: {text}", err=True)


@config.command(
    short_help="Print the effective value of every setting.",
    examples="""
        cordata config show
        cordata config show | grep -v '# default'
    """,
)
@config_option
@app_option
@traceback_option
def show(config: str | None, app: str | None) -> int:
    """Print the effective value of every setting; defaults are marked, secrets masked."""
    loaded = load(config, app)
    names = Credentials(loaded.config.paths.credentials).names()
    click.echo("\n".join(lines(loaded.config, loaded.document, names)))
    return 0
