"""`cordata config check` and `cordata config show`."""

from __future__ import annotations

import click

from cordata.cli.options import shared


@click.group()
def config() -> None:
    """Check or show the configuration."""


@config.command(
    epilog="""Examples:

\b
  cordata config check
  cordata config check --config ./cordata.toml && systemctl reload 'worker@*'"""
)
@shared
def check(config: str | None, app: str | None, debug: bool) -> int:
    """Check the file, the application and what it registers. Exit 78 names every problem."""
    from cordata.loading import load
    from cordata.opening import check_start, missing_state

    loaded = load(config, app)
    check_start(loaded.config, loaded.app)
    if (state := missing_state(loaded.config)) is not None:
        click.echo(f"note: [paths] state {state} does not exist; the service makes it", err=True)
    click.echo(f"{loaded.document.path or 'defaults (no file)'}: ok")
    return 0


@config.command(
    short_help="Print every setting as it is in effect.",
    epilog="""Examples:

\b
  cordata config show
  cordata config show | grep -v '# default'""",
)
@shared
def show(config: str | None, app: str | None, debug: bool) -> int:
    """Print every setting as it is in effect; defaults are marked, secrets masked."""
    from cordata.config.show import lines
    from cordata.loading import load
    from cordata.systemd import Credentials

    loaded = load(config, app)
    names = Credentials(loaded.config.paths.credentials).names()
    click.echo("\n".join(lines(loaded.config, loaded.document, names)))
    return 0
