"""The `cordata` command: names and help; each command's module is imported when it is called."""

from __future__ import annotations

import faulthandler
from collections.abc import Sequence
from typing import NoReturn

import click

from cordata import __version__
from cordata.terminal import LazyGroup, run_command

#: name -> (where, line in the list of `cordata --help`)
_COMMANDS = {
    "server": ("cordata.cli.server:server", "Run primary and workers in the foreground."),
    "new": ("cordata.cli.new:new", "Make a small working application."),
    "worker": ("cordata.cli.role:worker", "Run one worker (worker@.service)."),
    "primary": ("cordata.cli.role:primary", "Run the primary (primary.service)."),
    "pool": ("cordata.cli.pool:pool", "Look at the pool's processes, replace them."),
    "call": ("cordata.cli.call:call", "Run one command of the pool."),
    "job": ("cordata.cli.job:job", "Run a job once (its timer's service)."),
    "alert": ("cordata.cli.alerts:alert", "Report a failed unit (alert@.service)."),
    "alerts": ("cordata.cli.alerts:alerts", "Look at alerts, by kind."),
    "outbox": ("cordata.cli.outbox:outbox", "Look at events that were written."),
    "dlq": ("cordata.cli.dlq:dlq", "Look at dead letters, replay or drop them."),
    "group": ("cordata.cli.group:group", "See consumer groups, rename or remove them."),
    "events": ("cordata.cli.events:events", "Append to, read and follow the event store."),
    "subscriptions": (
        "cordata.cli.subscriptions:subscriptions",
        "See how far subscriptions are, reset them.",
    ),
    "migrate": ("cordata.cli.migrate:migrate", "Migrate the store, or see what is pending."),
    "config": ("cordata.cli.config:config", "Check or show the configuration."),
    "credentials": ("cordata.cli.credentials:credentials", "Create the master key, list secrets."),
}


@click.group(
    cls=LazyGroup,
    lazy=_COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""Exit codes: 0 done, 1 failed, 2 wrong usage, 69 something a job needs is unavailable
(try again soon), 75 another process runs the job, or the pool cannot take the call now (a later try
may succeed), 78 the configuration cannot be used, 130 ended by Ctrl-C.""",
)
@click.version_option(
    __version__, prog_name="cordata", message="%(prog)s %(version)s", help="Show the version."
)
def cordata() -> None:
    """Run a Python service as a rope team on systemd.

    The configuration is --config, else $CORDATA_CONFIG, else ./cordata.toml, which no other user
    may be able to change, else /etc/cordata/cordata.toml.

    On a server the units call these commands; on a workstation start with

    \b
      cordata new myapp
      cordata server --workers 4 --config myapp/cordata.toml
    """


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """The program. Exit codes: see `run_command`; 69 and 75 are those of commands for which another
    try makes sense.
    """
    # A missed watchdog is SIGABRT; this is how it leaves a trace of every thread.
    faulthandler.enable()
    run_command(lambda: cordata, "cordata", argv)
