"""`alpinehub source add|list|rotate|disable|enable`."""

from __future__ import annotations

import click

from alpinehub import sources
from alpinehub.cli.run import as_json, new_secret, read_secret, run, show, show_table

_from_stdin = click.option(
    "--secret-stdin", is_flag=True, help="Read the secret from standard input."
)


@click.group()
def source() -> None:
    """Sources of guest requests: website forms, booking systems."""


@source.command(
    epilog="""Examples:

\b
  alpinehub source add EDELW website
  echo "$SECRET" | alpinehub source add EDELW shop --secret-stdin"""
)
@click.argument("hotel")
@click.argument("name")
@click.option(
    "--kind", type=click.Choice(sources.KINDS), default="generic", show_default=True,
    help="Which webhook it posts to.",
)  # fmt: skip
@_from_stdin
@as_json
@click.pass_obj
def add(
    config: str | None, hotel: str, name: str, kind: str, secret_stdin: bool, json_: bool
) -> None:
    """Add a source to a hotel. A secret is made and printed, once, unless one is given."""
    secret = read_secret("Secret") if secret_stdin else new_secret()
    source_id = run(config, lambda ctx: sources.add_source(ctx, hotel, kind, name, secret))
    record: dict[str, object] = {"id": source_id, "hotel": hotel, "name": name, "kind": kind}
    _show(record, f"source {name} of {hotel} added", "" if secret_stdin else secret, json_)


@source.command("list")
@as_json
@click.pass_obj
def list_(config: str | None, json_: bool) -> None:
    """List all sources, without their secrets. ID is for `?source=` with a signature."""
    rows = run(config, lambda ctx: sources.list_sources(ctx.store))
    columns = ("id", "hotel", "name", "kind", "created_at", "changed_at", "disabled_at")
    show_table(rows, columns, json_)


@source.command()
@click.argument("hotel")
@click.argument("name")
@_from_stdin
@as_json
@click.pass_obj
def rotate(config: str | None, hotel: str, name: str, secret_stdin: bool, json_: bool) -> None:
    """Give a source another secret; the old one ends."""
    secret = read_secret("Secret") if secret_stdin else new_secret()
    run(config, lambda ctx: sources.set_secret(ctx, hotel, name, secret))
    record: dict[str, object] = {"hotel": hotel, "name": name}
    sentence = f"source {name} of {hotel} has a new secret"
    _show(record, sentence, "" if secret_stdin else secret, json_)


@source.command()
@click.argument("hotel")
@click.argument("name")
@as_json
@click.pass_obj
def disable(config: str | None, hotel: str, name: str, json_: bool) -> None:
    """Disable a source: it is answered 401."""
    run(config, lambda ctx: sources.set_source_disabled(ctx.store, hotel, name, True))
    record = {"hotel": hotel, "name": name, "disabled": True}
    show(record, f"source {name} of {hotel} disabled", json_)


@source.command()
@click.argument("hotel")
@click.argument("name")
@as_json
@click.pass_obj
def enable(config: str | None, hotel: str, name: str, json_: bool) -> None:
    """Enable a disabled source."""
    run(config, lambda ctx: sources.set_source_disabled(ctx.store, hotel, name, False))
    record = {"hotel": hotel, "name": name, "disabled": False}
    show(record, f"source {name} of {hotel} enabled", json_)


def _show(record: dict[str, object], sentence: str, secret: str, json_: bool) -> None:
    """With the secret when it was made here: the only time it is to be seen."""
    if secret:
        record["secret"] = secret
        sentence += f"\nsecret: {secret}\n(shown only now)"
    show(record, sentence, json_)
