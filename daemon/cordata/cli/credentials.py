"""`cordata credentials init|list`: creates secrets, lists the credentials by name."""

from __future__ import annotations

import os

import click

from cordata.app_loader import load_runtime
from cordata.errors import CordataError
from cordata.systemd import Credentials
from cordata.systemd.credentials import create
from cordata.terminal import Group, config_option, traceback_option
from cordata.vault import new_key


@click.group(cls=Group)
def credentials() -> None:
    """Create the master key or the token of the status page, list secrets."""


@credentials.command(
    short_help="Create a missing one of random digits.",
    examples="""
        sudo cordata credentials init
        cordata credentials init --config ./cordata.toml
        sudo cordata credentials init status-token
    """,
)
@click.argument(
    "name",
    type=click.Choice(["master-key", "status-token"]),
    default="master-key",
    metavar="[master-key|status-token]",
)
@config_option
@traceback_option
def init(name: str, config: str | None) -> int:
    """Create a credential of random digits if it is missing: the master key (default), or the token
    that opens the status page. It is never replaced.
    """
    directory = load_runtime(config).paths.credentials
    note = "keep a copy: sealed secrets need it" if name == "master-key" else "restart the workers"
    if create(directory, name, new_key()):
        click.echo(f"created {directory / name}; {note}")
    else:
        click.echo(f"{directory / name} exists and is not changed")
    return 0


@credentials.command(
    "list",
    examples="cordata credentials list",
)
@config_option
@traceback_option
def list_(config: str | None) -> int:
    """List the names of the existing credentials."""
    directory = load_runtime(config).paths.credentials
    try:
        os.listdir(directory)
    except FileNotFoundError:
        pass  # there are none
    except OSError as error:
        raise CordataError(f"{directory}: {error.strerror}", hint="run it as root") from error
    for name in Credentials(directory).names():
        click.echo(name)
    return 0
