"""`alpinehub account add|list|rotate|disable|enable|grant|revoke`."""

from __future__ import annotations

import click

from alpinehub import accounts
from alpinehub.cli.duration import duration
from alpinehub.cli.group import Group
from alpinehub.cli.run import as_json, new_secret, read_secret, run, show, show_table

_from_stdin = click.option(
    "--password-stdin", is_flag=True, help="Read the password from standard input."
)
_from_now = click.option(
    "--from-now", is_flag=True, help="Only what comes from now on, nothing that is there already."
)


@click.group(cls=Group, lazy={"push": "alpinehub.cli.push:push"})
def account() -> None:
    """Logins of hotel software (AlpineBits)."""


@account.command(
    epilog="""Examples:

\b
  alpinehub account add edelweiss-pms --hotel EDELW
  alpinehub account add new-pms --hotel EDELW --from-now
  pass show pms | alpinehub account add pms --hotel EDELW --hotel ROSE --password-stdin"""
)
@click.argument("name")
@click.option("--hotel", "hotels", multiple=True, metavar="CODE", help="A hotel it reads; several.")
@_from_now
@_from_stdin
@as_json
@click.pass_obj
def add(
    config: str | None,
    name: str,
    hotels: tuple[str, ...],
    from_now: bool,
    password_stdin: bool,
    json_: bool,
) -> None:
    """Add a login. A password is made and printed, once, unless one is given.

    An account new to a hotel gets what no other account of it has acknowledged yet, but nothing
    that was cancelled, withdrawn or erased, and no stay that is over. With --from-now: only what
    comes.
    """
    password = read_secret("Password") if password_stdin else new_secret()
    account_id = run(
        config,
        lambda ctx: accounts.add_account(ctx.store, name, password, hotels, from_now=from_now),
    )
    record: dict[str, object] = {"id": account_id, "name": name, "hotels": list(hotels)}
    _show(record, f"account {name} added", "" if password_stdin else password, json_)


@account.command("list")
@as_json
@click.pass_obj
def list_(config: str | None, json_: bool) -> None:
    """List all logins."""
    rows = run(config, lambda ctx: accounts.list_accounts(ctx.store))
    show_table(rows, ("name", "hotels", "created_at", "changed_at", "disabled_at"), json_)


@account.command(
    short_help="Give a login another password.",
    epilog="""Example:

\b
  alpinehub account rotate edelweiss-pms --keep 24h""",
)
@click.argument("name")
@click.option(
    "--keep", callback=duration, default="0", show_default=True,
    help="How long the old password is still taken: 30m, 24h.",
)  # fmt: skip
@_from_stdin
@as_json
@click.pass_obj
def rotate(config: str | None, name: str, keep: int, password_stdin: bool, json_: bool) -> None:
    """Give a login another password; the old one ends, unless it is kept for a while."""
    password = read_secret("Password") if password_stdin else new_secret()
    run(config, lambda ctx: accounts.set_password(ctx.store, name, password, keep_s=keep))
    old = f"is taken for {keep} s more" if keep else "is taken no more"
    sentence = f"account {name} has a new password; the old one {old}"
    _show({"name": name}, sentence, "" if password_stdin else password, json_)


@account.command()
@click.argument("name")
@as_json
@click.pass_obj
def disable(config: str | None, name: str, json_: bool) -> None:
    """Disable a login. What comes meanwhile goes to it when it is enabled again; until then it
    keeps nobody's data from being erased.
    """
    run(config, lambda ctx: accounts.set_account_disabled(ctx.store, name, True))
    show({"name": name, "disabled": True}, f"account {name} disabled", json_)


@account.command()
@click.argument("name")
@as_json
@click.pass_obj
def enable(config: str | None, name: str, json_: bool) -> None:
    """Enable a disabled login."""
    run(config, lambda ctx: accounts.set_account_disabled(ctx.store, name, False))
    show({"name": name, "disabled": False}, f"account {name} enabled", json_)


@account.command(short_help="Let a login read one more hotel.")
@click.argument("name")
@click.argument("hotel")
@_from_now
@as_json
@click.pass_obj
def grant(config: str | None, name: str, hotel: str, from_now: bool, json_: bool) -> None:
    """Let a login read one more hotel: what nobody acknowledged yet, and what comes."""
    run(config, lambda ctx: accounts.grant(ctx.store, name, hotel, from_now=from_now))
    show({"name": name, "hotel": hotel}, f"account {name} reads hotel {hotel}", json_)


@account.command()
@click.argument("name")
@click.argument("hotel")
@as_json
@click.pass_obj
def revoke(config: str | None, name: str, hotel: str, json_: bool) -> None:
    """Take a hotel from a login."""
    run(config, lambda ctx: accounts.revoke(ctx.store, name, hotel))
    show({"name": name, "hotel": hotel}, f"account {name} reads hotel {hotel} no more", json_)


def _show(record: dict[str, object], sentence: str, password: str, json_: bool) -> None:
    """With the password when it was made here: the only time it is to be seen."""
    if password:
        record["password"] = password
        sentence += f"\npassword: {password}\n(shown only now)"
    show(record, sentence, json_)
