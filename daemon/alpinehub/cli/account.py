"""`alpinehub account add|list|rotate|disable|enable|grant|revoke`."""

from __future__ import annotations

import click

from alpinehub import accounts
from alpinehub.cli.session import Hub, hub_options, read_secret
from alpinehub.sources import new_secret
from cordata.terminal import LazyGroup, duration, show_page

_from_stdin = click.option(
    "--password-stdin", is_flag=True, help="Read the password from standard input."
)
_from_now = click.option(
    "--from-now", is_flag=True, help="Only guest requests that arrive from now on."
)


@click.group(
    cls=LazyGroup,
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
    examples="""
        alpinehub account add edelweiss-pms --hotel EDELW
        alpinehub account add new-pms --hotel EDELW --from-now
        pass show pms | alpinehub account add pms --hotel EDELW --hotel ROSE --password-stdin
    """,
)
@click.argument("name")
@click.option(
    "--hotel", "hotels", multiple=True, metavar="CODE", help="A hotel it reads; may be repeated."
)
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

    An account that is new at a hotel gets the guest requests that no other account of the hotel has
    acknowledged yet, but none that was cancelled, withdrawn or erased, or whose stay is over. With
    --from-now it gets only those that arrive from now on.
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
    show_page(rows, ("name", "hotels", "created_at", "changed_at", "disabled_at"), json_=hub.json)


@account.command(
    examples="alpinehub account rotate edelweiss-pms --keep 24h",
)
@click.argument("name")
@click.option(
    "--keep", callback=duration, default="0", show_default=True,
    help="How long the old password is still accepted: 30m, 24h.",
)  # fmt: skip
@_from_stdin
@hub_options
def rotate(hub: Hub, name: str, keep: int, password_stdin: bool) -> None:
    """Give a login another password. The old one ends at once, or after --keep."""
    password = read_secret("Password") if password_stdin else new_secret()
    hub.run(lambda ctx: accounts.set_password(ctx.store, name, password, keep_s=keep))
    old = f"is accepted for another {keep} s" if keep else "is no longer accepted"
    sentence = f"account {name} has a new password; the old one {old}"
    _show(hub, {"name": name}, sentence, "" if password_stdin else password)


@account.command()
@click.argument("name")
@hub_options
def disable(hub: Hub, name: str) -> None:
    """Disable a login. Guest requests that arrive meanwhile are delivered when it is enabled again;
    until then they do not prevent that a person's data is erased.
    """
    hub.run(lambda ctx: accounts.set_account_disabled(ctx.store, name, True))
    hub.print_result({"name": name, "disabled": True}, f"account {name} disabled")


@account.command()
@click.argument("name")
@hub_options
def enable(hub: Hub, name: str) -> None:
    """Enable a disabled login."""
    hub.run(lambda ctx: accounts.set_account_disabled(ctx.store, name, False))
    hub.print_result({"name": name, "disabled": False}, f"account {name} enabled")


@account.command(short_help="Let a login read one more hotel.")
@click.argument("name")
@click.argument("hotel")
@_from_now
@hub_options
def grant(hub: Hub, name: str, hotel: str, from_now: bool) -> None:
    """Let a login read one more hotel: guest requests that no account has acknowledged, and all
    that arrive from now on.
    """
    hub.run(lambda ctx: accounts.grant(ctx.store, name, hotel, from_now=from_now))
    hub.print_result({"name": name, "hotel": hotel}, f"account {name} reads hotel {hotel}")


@account.command()
@click.argument("name")
@click.argument("hotel")
@hub_options
def revoke(hub: Hub, name: str, hotel: str) -> None:
    """Stop a login from reading a hotel."""
    hub.run(lambda ctx: accounts.revoke(ctx.store, name, hotel))
    hub.print_result(
        {"name": name, "hotel": hotel}, f"account {name} no longer reads hotel {hotel}"
    )


def _show(hub: Hub, record: dict[str, object], sentence: str, password: str) -> None:
    """Print what was done, and a generated password: it cannot be shown later."""
    if password:
        record["password"] = password
        sentence += f"\npassword: {password}\n(shown only now)"
    hub.print_result(record, sentence)
