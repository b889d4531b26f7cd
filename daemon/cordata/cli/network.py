"""`cordata network`: which addresses the units may connect to."""

from __future__ import annotations

import asyncio

import click

from cordata.app_loader import load_runtime
from cordata.config.reader import DEFAULT_FILE
from cordata.network import ANY, open_all
from cordata.network import restrict as write
from cordata.terminal import Group, config_option, show_json, traceback_option


@click.group(cls=Group)
def network() -> None:
    """Let the units connect to the hosts that the settings name, and to no others."""


@network.command(
    short_help="Restrict all units to these hosts.",
    examples="""
        cordata network restrict && cordata rolling-restart
        cordata network restrict --json
    """,
    exit_codes="0 done, 1 failed, 78 the configuration cannot be used",
)
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
@config_option
@traceback_option
def restrict(json_: bool, config: str | None) -> None:
    """Restrict each unit to the hosts that the settings name; run it as root.

    Writes a drop-in of systemd for each unit: packets to and from other addresses are dropped, and
    a unit that needs no host can open unix sockets only. It applies when a unit is started again.
    Requests are not affected: they arrive at http.socket.

    [network] allow names what the application itself connects to. With "any", its default, only
    units that run nothing of the application are restricted: alert@ and cordata-backup.

    Names are resolved now. Run it again when one has another address, or when the settings name
    other hosts; `cordata rolling-restart` does it, too.
    """
    from msgspec.structs import asdict

    # The file that the units read: another directory may have a cordata.toml.
    found = asyncio.run(write(load_runtime(config or DEFAULT_FILE)))
    if json_:
        show_json([asdict(one) for one in found])
        return
    width = max(len(one.unit) for one in found)
    for one in found:
        text = " ".join(one.addresses) or "unix sockets only"
        click.echo(f"{one.unit:<{width}}  {'any address' if ANY in one.hosts else text}")
    click.echo("it applies to each unit when that is started again: `cordata rolling-restart`")


@network.command(
    "open",
    short_help="Undo it.",
    examples="cordata network open && cordata rolling-restart",
    exit_codes="0 done, 1 failed",
)
@traceback_option
def open_() -> None:
    """Let all units connect to any address again, from their next start on; run it as root."""
    asyncio.run(open_all())
    click.echo("it applies to each unit when that is started again: `cordata rolling-restart`")
