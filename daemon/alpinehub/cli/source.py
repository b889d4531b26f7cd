"""`alpinehub source add|list|show|set|rotate|disable|enable`."""

from __future__ import annotations

from typing import Any

import click

from alpinehub import sources
from alpinehub.cli.session import Hub, hub_options, pair, read_secret
from cordata.terminal import Group, as_record, duration, printable, show_page, show_record

_from_stdin = click.option(
    "--secret-stdin", is_flag=True, help="Read the secret from standard input."
)
_options = click.option(
    "--option", "options", multiple=True, metavar="NAME=VALUE",
    help=f"Option of a form: {', '.join(sources.OPTIONS)}; may be repeated.",
)  # fmt: skip


@click.group(cls=Group)
def source() -> None:
    """Sources of guest requests: website forms, booking systems."""


@source.command(
    examples="""
        alpinehub source add EDELW website
        alpinehub source add EDELW homepage --kind wix
        alpinehub source add EDELW contact --kind form --option redirect=https://edelw.example/danke
        echo "$SECRET" | alpinehub source add EDELW shop --secret-stdin
    """,
)
@click.argument("hotel")
@click.argument("name")
@click.option(
    "--kind", type=click.Choice(sources.KINDS), default="generic", show_default=True,
    help="Which webhook it posts to.",
)  # fmt: skip
@_options
@_from_stdin
@hub_options
def add(
    hub: Hub,
    hotel: str,
    name: str,
    kind: str,
    options: tuple[str, ...],
    secret_stdin: bool,
) -> None:
    """Add a source to a hotel. A secret is made and printed, once, unless one is given.

    The URL to post to is printed, too; for the kinds wix and form it contains the secret.
    """
    secret = read_secret("Secret") if secret_stdin else sources.new_secret()
    chosen = dict(map(pair, options))
    source_id = hub.run(lambda ctx: sources.add_source(ctx, hotel, kind, name, secret, chosen))
    record: dict[str, object] = {"id": source_id, "hotel": hotel, "name": name, "kind": kind}
    sentence = f"source {name} of {hotel} added"
    _warn_of_shared_key(hub, record, secret)
    _show(hub, record, sentence, "" if secret_stdin else secret)


@source.command("list")
@hub_options
def list_(hub: Hub) -> None:
    """List all sources, without their secrets. ID is for `?source=` with a signature."""
    rows = hub.run(lambda ctx: sources.list_sources(ctx.store))
    columns = ("id", "hotel", "name", "kind", "created_at", "changed_at", "disabled_at")
    show_page(rows, columns, json_=hub.json)


@source.command(
    "show",
    short_help="Show a source, its mapping and its forms' fields.",
    examples="alpinehub source show EDELW homepage",
)
@click.argument("hotel")
@click.argument("name")
@hub_options
def show_(hub: Hub, hotel: str, name: str) -> None:
    """Show a source with its mapping and the fields that its forms had; never its secret."""
    record = hub.run(lambda ctx: sources.show_source(ctx.store, hotel, name))
    if not hub.json:
        forms: Any = record["forms"]
        record["forms"] = [
            {
                "form": one["form_key"] or None,
                "fields": [key or label for key, label in one["fields"]],
            }
            for one in forms
        ]
    show_record(record, json_=hub.json)


@source.command(
    "set",
    short_help="Change options of a form.",
    examples="alpinehub source set EDELW contact --option honeypot=url2 --option redirect=",
)
@click.argument("hotel")
@click.argument("name")
@_options
@hub_options
def set_(hub: Hub, hotel: str, name: str, options: tuple[str, ...]) -> None:
    """Change options of a form: honeypot (a hidden field that only robots fill in; empty: none),
    redirect (the page after the form; empty: a page with thanks), proof_of_work (number of zero
    bits, 1 to 24, of the proof that a script on the page adds to the form, as the example form.html
    does: 16 take a guest's browser a second or two; empty: none).
    """
    if not options:
        raise click.UsageError("nothing to change: give --option NAME=VALUE")
    chosen = dict(map(pair, options))
    hub.run(lambda ctx: sources.set_options(ctx.store, hotel, name, chosen))
    hub.print_result({"hotel": hotel, "name": name, "options": chosen}, f"source {name} changed")


@source.command(
    examples="""
        alpinehub source rotate EDELW homepage
        alpinehub source rotate EDELW shop --keep 0
    """,
)
@click.argument("hotel")
@click.argument("name")
@click.option(
    "--keep", callback=duration, default="24h", show_default=True,
    help="How long the old secret is still accepted; 0: it ends at once.",
)  # fmt: skip
@_from_stdin
@hub_options
def rotate(hub: Hub, hotel: str, name: str, keep: int, secret_stdin: bool) -> None:
    """Give a source another secret. The old one is also accepted for a while, so that nothing is
    lost until the sender has the new one; a warning in the journal names a source that still uses
    the old one.
    """
    secret = read_secret("Secret") if secret_stdin else sources.new_secret()
    record = hub.run(lambda ctx: sources.set_secret(ctx, hotel, name, secret, keep_s=keep))
    shown = {key: record[key] for key in ("hotel", "name", "kind", "before_until")}
    until = str(as_record(record)["before_until"]).replace("+00:00", "Z")
    old = f"is accepted until {until}" if record["before_until"] else "is no longer accepted"
    sentence = f"source {name} of {hotel} has a new secret; the old one {old}"
    _warn_of_shared_key(hub, shown, secret)
    _show(hub, shown, sentence, "" if secret_stdin else secret)


@source.command()
@click.argument("hotel")
@click.argument("name")
@hub_options
def disable(hub: Hub, hotel: str, name: str) -> None:
    """Disable a source: its requests are answered with 401."""
    hub.run(lambda ctx: sources.set_source_disabled(ctx.store, hotel, name, True))
    record = {"hotel": hotel, "name": name, "disabled": True}
    hub.print_result(record, f"source {name} of {hotel} disabled")


@source.command()
@click.argument("hotel")
@click.argument("name")
@hub_options
def enable(hub: Hub, hotel: str, name: str) -> None:
    """Enable a disabled source."""
    hub.run(lambda ctx: sources.set_source_disabled(ctx.store, hotel, name, False))
    record = {"hotel": hotel, "name": name, "disabled": False}
    hub.print_result(record, f"source {name} of {hotel} enabled")


def _warn_of_shared_key(hub: Hub, record: dict[str, object], secret: str) -> None:
    """Warn if another hotel has the same Google key: leads without a hotel are refused then."""
    if record["kind"] != "google":
        return
    hotel = str(record["hotel"])
    others = hub.run(lambda ctx: sources.hotels_with_key(ctx, hotel, secret))
    if others:
        click.echo(
            f"warning: {', '.join(map(printable, others))} has this key, too: leads posted to "
            "/api/webhook/google without a hotel are refused from now on, for all of them",
            err=True,
        )


def _show(hub: Hub, record: dict[str, object], sentence: str, secret: str) -> None:
    """Print what was done, the URL, and a generated secret: it cannot be shown later."""
    kind, hotel = str(record["kind"]), str(record["hotel"])
    if secret:
        record["secret"] = secret
        sentence += f"\nsecret: {secret}\n(shown only now)"
    record["path"] = sources.path_of(kind, hotel, secret or "SECRET")
    sentence += f"\npost to: https://HOST{record['path']}"
    hub.print_result(record, sentence)
