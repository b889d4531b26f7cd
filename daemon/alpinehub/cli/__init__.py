"""The `alpinehub` command: names and help; each command's module is imported when it is called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import click

from alpinehub.cli.session import Hub, with_hub
from cordata import __version__
from cordata.terminal import LazyGroup, run_command

#: name -> line in the list of `alpinehub --help`
_COMMANDS = {
    "account": "Logins of hotel software (AlpineBits).",
    "check": "Check an AlpineBits server for errors.",
    "customer": "Customers: find, show, export, erase.",
    "hotel": "Hotels: settings, enabled features, hotel data.",
    "inbox": "Submissions of forms: review, mapping, processing.",
    "pms": "Act as hotel software: send requests to an AlpineBits server.",
    "report": "Show the daily report of a hotel, or of all hotels.",
    "requests": "Guest requests: their state and history; send one again.",
    "source": "Sources of guest requests: website forms, booking systems.",
    "webhook": "Act as a form: send submissions to a hub.",
}


@click.group(
    name="alpinehub",
    cls=LazyGroup,
    lazy={name: (f"alpinehub.cli.{name}:{name}", line) for name, line in _COMMANDS.items()},
    context_settings={"help_option_names": ["-h", "--help"]},
    examples="""
        alpinehub hotel add EDELW --name "Hotel Edelweiss" --report-email info@edelweiss.example
        alpinehub account add edelweiss-pms --hotel EDELW
        alpinehub source add EDELW website
    """,
)
@click.version_option(__version__, prog_name="alpinehub")
def alpinehub() -> None:
    """The guest-request hub: hotels, their software and forms, guest requests; and tools to test
    this or another server.

    Every change is effective in all workers within two seconds.
    """


@alpinehub.command(short_help="Make a demo hotel with an account and sources.")
@with_hub
def demo(hub: Hub) -> None:
    """Make the hotel DEMO, its account demo with the password demo, and its sources: the secret of
    the generic one is demo, that of wix demo-wix-0123456789012, likewise for google and form.

    For tests only: these secrets are public. What exists already is not changed.
    """
    from alpinehub.demo import set_up

    made = hub.run(set_up)
    click.echo("demo hotel made" if made else "the demo hotel exists already")


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the command. Exit codes: 0 done, 1 failed, 2 wrong usage, 78 unusable configuration."""
    run_command(lambda: alpinehub, "alpinehub", argv)
