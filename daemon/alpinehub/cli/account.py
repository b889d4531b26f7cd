"""`alpinehub account add|list|rotate|disable|enable|grant|revoke`."""

from __future__ import annotations

import click

from alpinehub import accounts
from alpinehub.cli.session import Group, Hub, hub_options, new_secret, read_secret
from cordata.terminal import duration, show_list

_from_stdin = click.option(
    "--password-stdin", is_flag=True, help="Read the password from standard input."
)
_from_now = click.option(
    "--from-now", is_flag=True, help="Only what comes from now on, nothing that is there already."
)


@click.group(
    cls=Group,
    lazy={
        "push": (
            "alpinehub.cli.push:push",
            "Send guest requests to hotel software that does not fetch them.",
        )
    },
)
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
@hub_options
def add(
    hub: Hub,
    name: str,
    hotels: tuple[str, ...],
    from_now: bool,
    password_stdin: bool,
) -> None:
    """Add a login. A password is made and printed, once, unless one is given.

    An account new to a hotel gets what no other account of it has acknowledged yet, but nothing
    that was cancelled, withdrawn or erased, and no stay that is over. With --from-now: only what
    comes.
    """
    password = read_secret("Password") if password_stdin else new_secret()
    account_id = hub.run(
        lambda ctx: accounts.add_account(ctx.store, name, password, hotels, from_now=from_now),
    )
    record: dict[str, object] = {"id": account_id, "name": name, "hotels": list(hotels)}
    _show(hub, record, f"account {name} added", "" if password_stdin else password)


@account.command("list")
@hub_options
def list_(hub: Hub) -> None:
    """List all logins."""
    rows = hub.run(lambda ctx: accounts.list_accounts(ctx.store))
    show_list(rows, ("name", "hotels", "created_at", "changed_at", "disabled_at"), json_=hub.json)


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
@hub_options
def rotate(hub: Hub, name: str, keep: int, password_stdin: bool) -> None:
    """Give a login another password; the old one ends, unless it is kept for a while."""
    password = read_secret("Password") if password_stdin else new_secret()
    hub.run(lambda ctx: accounts.set_password(ctx.store, name, password, keep_s=keep))
    old = f"is taken for {keep} s more" if keep else "is taken no more"
    sentence = f"account {name} has a new password; the old one {old}"
    _show(hub, {"name": name}, sentence, "" if password_stdin else password)


@account.command()
@click.argument("name")
@hub_options
def disable(hub: Hub, name: str) -> None:
    """Disable a login. What comes meanwhile goes to it when it is enabled again; until then it
    keeps nobody's data from being erased.
    """
    hub.run(lambda ctx: accounts.set_account_disabled(ctx.store, name, True))
    hub.say({"name": name, "disabled": True}, f"account {name} disabled")


@account.command()
@click.argument("name")
@hub_options
def enable(hub: Hub, name: str) -> None:
    """Enable a disabled login."""
    hub.run(lambda ctx: accounts.set_account_disabled(ctx.store, name, False))
    hub.say({"name": name, "disabled": False}, f"account {name} enabled")


@account.command(short_help="Let a login read one more hotel.")
@click.argument("name")
@click.argument("hotel")
@_from_now
@hub_options
def grant(hub: Hub, name: str, hotel: str, from_now: bool) -> None:
    """Let a login read one more hotel: what nobody acknowledged yet, and what comes."""
    hub.run(lambda ctx: accounts.grant(ctx.store, name, hotel, from_now=from_now))
    hub.say({"name": name, "hotel": hotel}, f"account {name} reads hotel {hotel}")


@account.command()
@click.argument("name")
@click.argument("hotel")
@hub_options
def revoke(hub: Hub, name: str, hotel: str) -> None:
    """Take a hotel from a login."""
    hub.run(lambda ctx: accounts.revoke(ctx.store, name, hotel))
    hub.say({"name": name, "hotel": hotel}, f"account {name} reads hotel {hotel} no more")


def _show(hub: Hub, record: dict[str, object], sentence: str, password: str) -> None:
    """With the password when it was made here: the only time it is to be seen."""
    if password:
        record["password"] = password
        sentence += f"\npassword: {password}\n(shown only now)"
    hub.say(record, sentence)
