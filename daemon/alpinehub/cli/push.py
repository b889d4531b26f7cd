"""`alpinehub account push set|list|now|test|off|on`: guest requests brought to hotel software."""

from __future__ import annotations

import click

from alpinehub.alpinebits.protocol import HANDSHAKE, PROTOCOLS
from alpinehub.cli.peer import Server, converse
from alpinehub.cli.peer_view import show_handshake
from alpinehub.cli.session import Hub, hub_options, read_secret
from alpinehub.pms import message
from alpinehub.pms.offer import offer
from alpinehub.push import target as targets
from cordata import Context
from cordata.terminal import show_list

_VERSIONS = [name for name, one in PROTOCOLS.items() if one.year >= targets.PUSHED_SINCE]


@click.group()
def push() -> None:
    """Bring guest requests to hotel software that does not fetch them.

    What is brought is what the account would fetch, and he may still fetch it. A server that does
    not answer is tried again after 5 s, 10 s and so on up to 15 minutes.
    """


@push.command(
    "set",
    short_help="Bring an account's guest requests to a URL from now on.",
    epilog="""Example:

\b
  pass show pms | alpinehub account push set edelweiss-pms --login hub \\
      --url https://pms.example/alpinebits --version 2022-10""",
)
@click.argument("name")
@click.option("--url", required=True, help="Where the hotel software takes AlpineBits: https://")
@click.option("--login", required=True, help="Our account name there.")
@click.option(
    "--version",
    "protocol",
    type=click.Choice(_VERSIONS),
    default=_VERSIONS[-1],
    show_default=True,
    help="The AlpineBits version that is spoken there.",
)
@click.option(
    "--gzip", "packed", is_flag=True, help="Pack what is sent; only where the server announces it."
)
@hub_options
def set_(hub: Hub, name: str, url: str, login: str, protocol: str, packed: bool) -> None:
    """Bring an account's guest requests there, from now on; also what waits for him already.

    Our password there is read from standard input, or asked for.
    """
    password = read_secret("Password")
    hub.run(
        lambda ctx: targets.set_target(
            ctx,
            name,
            url=url,
            login=login,
            password=password,
            protocol=protocol,
            packed=packed,
        ),
    )
    record = {"name": name, "url": url, "login": login, "protocol": protocol, "gzip": packed}
    hub.say(record, f"guest requests of account {name} are brought to {url}")


@push.command("list", short_help="List who is brought what, and what is in the way.")
@hub_options
def list_(hub: Hub) -> None:
    """List who is brought what: what waits, since when it works or fails, and why."""
    rows = hub.run(targets.list_targets)
    columns = ("name", "hotel", "url", "protocol", "waiting", "failures", "last_error", "due_at")
    show_list(rows, (*columns, "pushed_at", "disabled_at"), json_=hub.json)


@push.command()
@click.argument("name")
@hub_options
def now(hub: Hub, name: str) -> None:
    """Bring what waits for an account now, without a pause."""
    hub.run(lambda ctx: targets.bring_now(ctx, name))
    hub.say({"name": name}, f"what waits for account {name} is brought now")


@push.command(short_help="Shake hands with an account's server; nothing is brought.")
@click.argument("name")
@hub_options
def test(hub: Hub, name: str) -> None:
    """Shake hands with an account's server, and show what it can; nothing is brought.

    Exit codes as those of `alpinehub pms`.
    """

    async def find(ctx: Context) -> tuple[targets.Target, bool]:
        return await targets.find_target(ctx, name), ctx.settings["alpinehub"].push_private

    target, private = hub.run(find)
    client = target.client(private=private)
    server = Server(
        url=target.url,
        user=target.login,
        password=target.password,
        protocol=target.protocol.name,
        client_id=targets.CLIENT_ID,
        caller=client.caller,
    )
    answer = converse(client.call(HANDSHAKE, message.ping(offer())), hub.json)
    show_handshake(server, [answer], hub.json)


@push.command()
@click.argument("name")
@hub_options
def off(hub: Hub, name: str) -> None:
    """Bring an account nothing more; he may still fetch what waits."""
    hub.run(lambda ctx: targets.set_disabled(ctx, name, True))
    hub.say({"name": name, "disabled": True}, f"account {name} is brought nothing more")


@push.command()
@click.argument("name")
@hub_options
def on(hub: Hub, name: str) -> None:
    """Go on with bringing after `off`."""
    hub.run(lambda ctx: targets.set_disabled(ctx, name, False))
    hub.say({"name": name, "disabled": False}, f"guest requests of account {name} are brought")
