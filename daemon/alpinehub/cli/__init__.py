"""The `alpinehub` command. Only here errors become exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from alpinehub.cli.group import Group, take_config
from cordata import ConfigError, CordataError, __version__

EXIT_FAILED, EXIT_INTERRUPTED, EXIT_CONFIG = 1, 130, 78
_NAMES = (
    *("check", "customer", "hotel", "inbox", "pms", "report", "requests", "source", "account"),
    "webhook",
)


@click.group(
    name="alpinehub",
    cls=Group,
    lazy={name: f"alpinehub.cli.{name}:{name}" for name in _NAMES},
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""A first hotel:

\b
  alpinehub hotel add EDELW --name "Hotel Edelweiss" --report-email info@edelweiss.example
  alpinehub account add edelweiss-pms --hotel EDELW
  alpinehub source add EDELW website""",
)
@click.version_option(__version__, prog_name="alpinehub")
@click.option(
    "--config",
    type=click.Path(dir_okay=False),
    envvar="CORDATA_CONFIG",
    help="Configuration file.  [default: ./cordata.toml, else /etc/cordata/cordata.toml]",
)
@click.pass_context
def alpinehub(context: click.Context, config: str | None) -> None:
    """The guest-request hub: its hotels, their software and forms, what came in and what became of
    it; and tools to try this or another server.

    Every change is effective in all workers within two seconds.
    """
    context.obj = config


@alpinehub.command(short_help="Make a hotel, its account and its sources for trying out.")
@click.pass_obj
def demo(config: str | None) -> None:
    """Make the hotel DEMO, its account demo with password demo, its webhook secrets: demo, and
    demo-wix-0123456789012 of the source wix, likewise of google and form.

    For trying out only: everybody knows them. What exists already is left as it is.
    """
    from alpinehub.cli.run import run
    from alpinehub.demo import set_up

    made = run(config, set_up)
    click.echo("demo hotel made" if made else "the demo hotel is there already")


take_config(demo)


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """The command. Exit codes: 0 done, 1 failed, 2 wrong usage, 78 unusable configuration."""
    try:
        alpinehub.main(args=argv and list(argv), prog_name="alpinehub", standalone_mode=False)
        code = 0
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = EXIT_INTERRUPTED
    except OSError as error:
        if not isinstance(error, BrokenPipeError):  # then the reader of our output had enough
            print(f"error: {error}", file=sys.stderr)
        # Our output may be what failed; not to fail once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = EXIT_FAILED
    except CordataError as error:
        print(f"error: {error}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        code = EXIT_CONFIG if isinstance(error, ConfigError) else EXIT_FAILED
    sys.exit(code)
