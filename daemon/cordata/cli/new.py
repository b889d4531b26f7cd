"""`cordata new NAME`."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click


@click.command(
    epilog="""Examples:

\b
  cordata new myapp
  cordata new bookings --dir /srv/bookings

Exit codes: 0 made, 1 the directory is there already, or cannot be written, 2 not a name."""
)
@click.argument("name")
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where to make it.  [default: ./NAME]",
)
def new(name: str, directory: Path | None) -> int:
    """Make a small working application: handler, job, function for the pool, command, tests.

    NAME is that of the application and of its Python package. Nothing that is there is overwritten.
    """
    from cordata.scaffold import BadName, make

    place = directory or Path(name)
    try:
        made = make(name, place.absolute())
    except BadName as error:
        raise click.BadParameter(str(error), param_hint="NAME") from None
    except OSError as error:
        raise click.ClickException(f"{error.filename}: {error.strerror}") from error
    click.echo(f"{place}: {len(made)} files. What is next:\n")
    config = shlex.quote(os.fspath(place / "cordata.toml"))
    click.echo(f"  cordata server --config {config} --workers 2")
    click.echo('  curl -sS http://127.0.0.1:8080/orders --json \'{"item": "boots"}\'')
    click.echo(f"  (cd {shlex.quote(os.fspath(place))} && pytest)")
    return 0
