"""The `cordata` command: names and help; each command's module is imported when it is called."""

from __future__ import annotations

import faulthandler
from collections.abc import Sequence
from typing import NoReturn

import click

from cordata import __version__
from cordata.terminal import LazyGroup, run_command

#: name -> (`module:attribute` of the command, its line in the list of `cordata --help`)
_COMMANDS = {
    "server": ("cordata.cli.server:server", "Run primary and workers in the foreground."),
    "new": ("cordata.cli.new:new", "Create a small working application."),
    "worker": ("cordata.cli.role:worker", "Run one worker (worker@.service)."),
    "primary": ("cordata.cli.role:primary", "Run the primary (primary.service)."),
    "status": ("cordata.cli.status:status", "Show what runs, what waits, and what is wrong."),
    "rolling-restart": (
        "cordata.cli.rolling_restart:rolling_restart",
        "Restart primary and workers one by one.",
    ),
    "scale": ("cordata.cli.scale:scale", "Change the number of workers of this host."),
    "drain": ("cordata.cli.scale:drain", "Take one worker out of service."),
    "network": ("cordata.cli.network:network", "Restrict which hosts the units connect to."),
    "pool": ("cordata.cli.pool:pool", "Show the pool's processes, replace them."),
    "call": ("cordata.cli.call:call", "Run one command of the pool."),
    "job": ("cordata.cli.job:job", "Run a job once (its timer's service)."),
    "alert": ("cordata.cli.alerts:alert", "Report a failed unit (alert@.service)."),
    "alerts": ("cordata.cli.alerts:alerts", "List, show and clear alerts."),
    "mail": ("cordata.cli.mail:mail", "List mails, try them again, test the mail server."),
    "outbox": ("cordata.cli.outbox:outbox", "List, show, replay and purge published events."),
    "dlq": ("cordata.cli.dlq:dlq", "List dead letters, replay or drop them."),
    "group": ("cordata.cli.group:group", "List consumer groups, or remove one."),
    "events": ("cordata.cli.events:events", "Append to, read and follow the event store."),
    "subscriptions": (
        "cordata.cli.subscriptions:subscriptions",
        "Show the progress of subscriptions, reset them.",
    ),
    "logs": ("cordata.cli.logs:logs", "Show the log of all units, or follow it."),
    "trace": ("cordata.cli.trace:trace", "Show what one request caused."),
    "migrate": ("cordata.cli.migrate:migrate", "Migrate the store, or list pending migrations."),
    "backup": ("cordata.cli.backup:backup", "Copy store, configuration and credentials."),
    "restore": ("cordata.cli.backup:restore", "Put the store of a backup in place."),
    "db": ("cordata.cli.db:db", "Copy the store to the other kind of database, or go back."),
    "doctor": ("cordata.cli.doctor:doctor", "Check this host, and say what to do."),
    "report-bug": ("cordata.cli.report_bug:report_bug", "Pack what a report of a bug needs."),
    "config": ("cordata.cli.config:config", "Check or show the configuration."),
    "credentials": ("cordata.cli.credentials:credentials", "Create the master key, list secrets."),
}


@click.group(
    cls=LazyGroup,
    lazy=_COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    exit_codes="""
        0 done, 1 failed, or degraded (status), 2 wrong usage, or down (status), 3 all processes
        have to restart at once (rolling-restart), 69 a dependency of a job is unavailable (try
        again soon), 75 another process runs the job, or the pool cannot take the call now (a later
        try may succeed), 78 the configuration cannot be used, 130 ended by Ctrl-C
    """,
)
@click.version_option(
    __version__, prog_name="cordata", message="%(prog)s %(version)s", help="Show the version."
)
def cordata() -> None:
    """Run a multi-process Python service on systemd.

    The configuration file is --config, else $CORDATA_CONFIG, else ./cordata.toml (refused if
    another user can change it, or if /etc/cordata names an application as well), else
    /etc/cordata/cordata.toml.

    On a server, systemd units call these commands; on a workstation, start with

    \b
      cordata new myapp
      cordata server --workers 4 --config myapp/cordata.toml
    """


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the program and exit. Exit codes: those of `run_command`, and what single commands
    return: 3, and 69 and 75 of those that may succeed when they are tried again.
    """
    # When the watchdog expires, systemd sends SIGABRT; this prints the stack of every thread.
    faulthandler.enable()
    run_command(lambda: cordata, "cordata", argv)
