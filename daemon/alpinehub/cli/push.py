"""`alpinehub account push set|list|now|test|off|on`: guest requests brought to hotel software."""

from __future__ import annotations

import click

from alpinehub.alpinebits.protocol import HANDSHAKE, PROTOCOLS
from alpinehub.cli.peer import Server, converse
from alpinehub.cli.peer_view import show_handshake
from alpinehub.cli.run import as_json, read_secret, run, show, show_table
from alpinehub.pms import message
from alpinehub.pms.offer import offer
from alpinehub.push import target as targets
from cordata import Context

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
@as_json
@click.pass_obj
def set_(
    config: str | None, name: str, url: str, login: str, protocol: str, packed: bool, json_: bool
) -> None:
    """Bring an account's guest requests there, from now on; also what waits for him already.

    Our password there is read from standard input, or asked for.
    """
    password = read_secret("Password")
    run(
        config,
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
    show(record, f"guest requests of account {name} are brought to {url}", json_)


@push.command("list", short_help="List who is brought what, and what is in the way.")
@as_json
@click.pass_obj
def list_(config: str | None, json_: bool) -> None:
    """List who is brought what: what waits, since when it works or fails, and why."""
    rows = run(config, targets.list_targets)
    columns = ("name", "hotel", "url", "protocol", "waiting", "failures", "last_error", "due_at")
    show_table(rows, (*columns, "pushed_at", "disabled_at"), json_)


@push.command()
@click.argument("name")
@as_json
@click.pass_obj
def now(config: str | None, name: str, json_: bool) -> None:
    """Bring what waits for an account now, without a pause."""
    run(config, lambda ctx: targets.bring_now(ctx, name))
    show({"name": name}, f"what waits for account {name} is brought now", json_)


@push.command(short_help="Shake hands with an account's server; nothing is brought.")
@click.argument("name")
@as_json
@click.pass_obj
def test(config: str | None, name: str, json_: bool) -> None:
    """Shake hands with an account's server, and show what it can; nothing is brought.

    Exit codes as those of `alpinehub pms`.
    """

    async def find(ctx: Context) -> tuple[targets.Target, bool]:
        return await targets.find_target(ctx, name), ctx.settings["alpinehub"].push_private

    target, private = run(config, find)
    client = target.client(private=private)
    server = Server(
        url=target.url,
        user=target.login,
        password=target.password,
        protocol=target.protocol.name,
        client_id=targets.CLIENT_ID,
        caller=client.caller,
    )
    answer = converse(client.call(HANDSHAKE, message.ping(offer())), json_)
    show_handshake(server, [answer], json_)


@push.command()
@click.argument("name")
@as_json
@click.pass_obj
def off(config: str | None, name: str, json_: bool) -> None:
    """Bring an account nothing more; he may still fetch what waits."""
    run(config, lambda ctx: targets.set_disabled(ctx, name, True))
    show({"name": name, "disabled": True}, f"account {name} is brought nothing more", json_)


@push.command()
@click.argument("name")
@as_json
@click.pass_obj
def on(config: str | None, name: str, json_: bool) -> None:
    """Go on with bringing after `off`."""
    run(config, lambda ctx: targets.set_disabled(ctx, name, False))
    show({"name": name, "disabled": False}, f"guest requests of account {name} are brought", json_)
