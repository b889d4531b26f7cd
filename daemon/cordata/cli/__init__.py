"""The `cordata` command: parse, load the configuration, call. No logic of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    import click


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """The program. Exit codes: see `run_command`; 69 and 75 are those of commands for which another
    try makes sense.
    """
    import faulthandler

    from cordata.terminal.program import run_command

    # A missed watchdog is SIGABRT; this is how it leaves a trace of every thread.
    faulthandler.enable()
    run_command(_load, "cordata", argv)


def _load() -> click.Command:
    from cordata.cli.commands import cordata

    return cordata
