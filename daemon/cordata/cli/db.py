"""`cordata db copy|reopen`."""

from __future__ import annotations

import os
from dataclasses import asdict, replace

import click

from cordata.app_loader import load
from cordata.backup.restore import Host
from cordata.cli.operator import Operator, confirm, operator_options
from cordata.cli.options import app_option, yes_option
from cordata.config import Config, build, find_file, open_document
from cordata.context_factory import chains_of
from cordata.dbcopy.copy import Copied
from cordata.dbcopy.copy import copy as copy_store
from cordata.dbcopy.copy import reopen as reopen_store
from cordata.errors import ConfigError
from cordata.log import with_hint
from cordata.store import check_url
from cordata.systemd.hint import start_hint, stop_hint
from cordata.terminal import Group, ProgressBar, show_json


@click.group(cls=Group)
def db() -> None:
    """The database: copy the store to one of the other kind; the way back to the old one."""


@db.command(
    short_help="Copy the store from SQLite to PostgreSQL, or back.",
    examples="""
        cordata db copy --to postgresql://cordata@db.example.com/cordata
        cordata db copy --to postgresql://cordata@db.example.com/cordata --finish
        cordata db copy --to sqlite:///var/lib/cordata/cordata.db --finish
    """,
    exit_codes="""
        0 the pass is complete; 1 refused or failed, and the same command goes on; 2 wrong usage; 78
        program and store do not fit together, or the configuration cannot be used; 130 ended by
        Ctrl-C, and the same command goes on
    """,
)
@click.option("--to", "url", required=True, metavar="URL", help="The copy, as in [store] url.")
@click.option("--finish", is_flag=True, help="The last pass; the service has to be stopped.")
@app_option
@operator_options
def copy(operator: Operator, url: str, finish: bool, app: str | None) -> int:
    """Copy the store of the configuration to URL, a database of the other kind.

    The first pass makes the tables in an empty database and copies all rows while the service
    runs. Call it again at any time, also after it was killed: it compares, and writes what differs.
    With --finish the service must be stopped: this pass copies the last changes, checks every row
    of both databases, and completes the copy. Until then no service starts on it, and from then on
    none on the old store: `cordata db reopen` is the way back.

    Otherwise the store is only read, as is the configuration. What to do next is printed.
    """
    os.umask(0o077)
    loaded = load(operator.config, app)
    config = operator.with_state_dir(loaded.config)
    _check_target(url, config)
    host = Host(config=config, document=loaded.document, chains=chains_of(loaded.app))
    with ProgressBar() as bar:
        done = copy_store(host, url, finish=finish, draw=bar.draw)
    steps = _next_steps(done, url, host)
    if operator.json:
        show_json(asdict(done) | {"next": steps})
        return 0
    rows, written, deleted = (
        sum(getattr(one, name) for one in done.tables.values())
        for name in ("rows", "written", "deleted")
    )
    click.echo(
        f"{done.source} -> {done.target}: {len(done.tables)} tables, {rows:,} rows;"
        f" {written:,} written and {deleted:,} deleted in {done.seconds:.1f} s"
    )
    click.echo("all rows are the same" if finish else "not finished: changes of the service go on")
    for step in steps:
        click.echo(f"next: {step}")
    return 0


@db.command(
    short_help="Go back to a store that was moved.",
    examples="cordata db reopen --yes",
    exit_codes="""
        0 services may start on it, 1 a process uses it, or not confirmed, 78 it is an unfinished
        copy, or the configuration cannot be used
    """,
)
@yes_option
@operator_options
def reopen(operator: Operator, yes: bool) -> int:
    """Let services start again on the store of the configuration, from which `cordata db copy
    --finish` has moved.

    It is as it was then: what the service has written to the copy since is not in it. Stop all
    services that use the copy first, or both would answer and send mail.
    """
    os.umask(0o077)
    document = open_document(find_file(operator.config))
    config = operator.with_state_dir(build(document, None))
    confirm("Have all services that use the copy been stopped?", yes=yes)
    moved_to = reopen_store(Host(config=config, document=document, chains=()))
    sentence = "services may start on this store; "
    sentence += f"it was moved to {moved_to}" if moved_to else "it was not moved"
    operator.print_result({"moved_to": moved_to}, sentence)
    return 0


def _check_target(url: str, config: Config) -> None:
    """Raises: click.UsageError; `check_url` speaks of the setting that takes the same."""
    try:
        check_url(replace(config.store, url=url, session_url=""), config.paths.state)
    except ConfigError as error:
        raise click.UsageError(with_hint(error).replace("[store] url", "--to")) from None


def _next_steps(done: Copied, url: str, host: Host) -> list[str]:
    """What the operator does after a pass."""
    if not done.finished:
        return [stop_hint(units=host.is_server), f"cordata db copy --to '{url}' --finish"]
    return [
        f'set url = "{url}" in the section [store] of {host.document.path}',
        "cordata config check",
        start_hint(units=host.is_server),
    ]
