"""`cordata credentials init|list`: creates the master key, lists the credentials by name."""

from __future__ import annotations

import click

from cordata.cli.options import shared


@click.group()
def credentials() -> None:
    """Create the master key, list secrets."""


@credentials.command(
    epilog="""Examples:

\b
  sudo cordata credentials init
  cordata credentials init --config ./cordata.toml"""
)
@shared
def init(config: str | None, app: str | None, debug: bool) -> int:
    """Create the credential master-key if it is missing. It is never replaced."""
    from cordata.app_loader import load_runtime
    from cordata.systemd.credentials import create
    from cordata.vault import MASTER_KEY, new_key

    directory = load_runtime(config).paths.credentials
    if create(directory, MASTER_KEY, new_key()):
        click.echo(f"created {directory / MASTER_KEY}; keep a copy: sealed secrets need it")
    else:
        click.echo(f"{directory / MASTER_KEY} exists and is not changed")
    return 0


@credentials.command("list", epilog="Example: cordata credentials list")
@shared
def list_(config: str | None, app: str | None, debug: bool) -> int:
    """List the names of the existing credentials."""
    from cordata.app_loader import load_runtime
    from cordata.systemd import Credentials

    directory = load_runtime(config).paths.credentials
    for name in Credentials(directory).names():
        click.echo(name)
    return 0
