"""`cordata new NAME`: creates an application from the template of `cordata.scaffold`."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from cordata.scaffold import BadName, make
from cordata.terminal import Command, printable


@click.command(
    cls=Command,
    examples="""
        cordata new myapp
        cordata new bookings --dir /srv/bookings
        cordata new myapp --template fastapi
    """,
    exit_codes="""
        0 created, 1 the directory is not empty, or cannot be written, 2 NAME is not allowed
    """,
)
@click.argument("name")
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory to create.  [default: ./NAME]",
)
@click.option(
    "--template",
    type=click.Choice(("starlette", "fastapi")),
    default="starlette",
    show_default=True,
    help="What serves HTTP; any other ASGI framework can take its place.",
)
def new(name: str, directory: Path | None, template: str) -> int:
    """Create a small working application: handler, job, pool command, CLI command, tests.

    NAME is the name of the application and of its Python package. No file is overwritten.
    """
    place = directory or Path(name)
    try:
        made = make(name, place.absolute(), template=template)
    except BadName as error:
        raise click.BadParameter(str(error), param_hint="NAME") from None
    except OSError as error:
        raise click.ClickException(f"{error.filename}: {error.strerror}") from error
    click.echo(printable(f"{place}: {len(made)} files created.") + " Next:\n")
    config = shlex.quote(os.fspath(place / "cordata.toml"))
    click.echo(printable(f"  cordata server --config {config} --workers 2"))
    click.echo('  curl -sS http://127.0.0.1:8080/orders --json \'{"item": "boots"}\'')
    click.echo(printable(f"  (cd {shlex.quote(os.fspath(place))} && pytest)"))
    return 0
