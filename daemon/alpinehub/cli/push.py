"""`alpinehub account push set|list|now|test|off|on`: push delivery to hotel software."""

from __future__ import annotations

from typing import Any

import click

from alpinehub.alpinebits.action import HANDSHAKE
from alpinehub.alpinebits.protocol import PROTOCOLS
from alpinehub.alpinebits_client import message
from alpinehub.alpinebits_client.offer import offer
from alpinehub.cli.peer import converse
from alpinehub.cli.peer_view import show_handshake
from alpinehub.cli.session import Hub, hub_options, read_secret
from alpinehub.push import target as targets
from cordata.terminal import Group, show_page

#: The versions that can push guest requests.
_VERSIONS = [name for name, one in PROTOCOLS.items() if one.year >= 2018]


@click.group(cls=Group)
def push() -> None:
    """Push guest requests to hotel software that does not fetch them.

    The hub sends what the account would fetch; the account may still fetch it. If the server does
    not answer, the hub tries again after 5 s, 10 s and so on, up to 15 minutes.
    """


@push.command(
    "set",
    short_help="Push the guest requests of an account to a URL.",
    examples="""
        pass show pms | alpinehub account push set edelweiss-pms --login hub \\
            --url https://pms.example/alpinebits --version 2022-10
    """,
)
@click.argument("name")
@click.option("--url", required=True, help="AlpineBits endpoint of the hotel software: https://")
@click.option("--login", required=True, help="User name of the hub at that server.")
@click.option(
    "--version",
    "protocol",
    type=click.Choice(_VERSIONS),
    default=_VERSIONS[-1],
    show_default=True,
    help="The AlpineBits version of that server.",
)
@click.option(
    "--gzip",
    is_flag=True,
    help="Compress requests, if the server announces that it accepts it.",
)
@hub_options
def set_(hub: Hub, /, name: str, **target: Any) -> None:
    """Push the guest requests of an account to a URL, also those that wait already.

    The password of the hub at that server is read from standard input or the terminal.
    """
    password = read_secret("Password")
    hub.run(lambda ctx: targets.set_target(ctx, name, password=password, **target))
    sentence = f"guest requests of account {name} are pushed to {target['url']}"
    hub.print_result({"name": name, **target}, sentence)


@push.command("list", short_help="List push deliveries, and what is wrong with them.")
@hub_options
def list_(hub: Hub) -> None:
    """List push deliveries: what waits, when the last push was, failures and their reason."""
    rows = hub.run(targets.list_targets)
    columns = ("name", "hotel", "url", "protocol", "waiting", "failures", "last_error", "due_at")
    show_page(rows, (*columns, "pushed_at", "disabled_at"), json_=hub.json)


@push.command(short_help="Push what waits for an account now.")
@click.argument("name")
@hub_options
def now(hub: Hub, name: str) -> None:
    """Push what waits for an account now, without the pause after a failure."""
    hub.run(lambda ctx: targets.push_now(ctx, name))
    hub.print_result({"name": name}, f"what waits for account {name} is pushed now")


@push.command(short_help="Shake hands with the server of an account; nothing is pushed.")
@click.argument("name")
@hub_options
def test(hub: Hub, name: str) -> int:
    """Shake hands with the server of an account, and show its capabilities; nothing is pushed.

    The exit codes are those of `alpinehub pms`.
    """

    client = hub.run(lambda ctx: targets.find_client(ctx, name))
    answer = converse(client.call(HANDSHAKE, message.ping(offer())), hub.json)
    return show_handshake(client, [answer], hub.json)


@push.command()
@click.argument("name")
@hub_options
def off(hub: Hub, name: str) -> None:
    """Disable push delivery to an account. It may still fetch what waits."""
    hub.run(lambda ctx: targets.set_disabled(ctx, name, True))
    hub.print_result(
        {"name": name, "disabled": True}, f"push delivery to account {name} is disabled"
    )


@push.command()
@click.argument("name")
@hub_options
def on(hub: Hub, name: str) -> None:
    """Enable push delivery again."""
    hub.run(lambda ctx: targets.set_disabled(ctx, name, False))
    hub.print_result(
        {"name": name, "disabled": False}, f"push delivery to account {name} is enabled"
    )
