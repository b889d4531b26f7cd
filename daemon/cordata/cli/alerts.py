"""`cordata alerts list|show|clear`, and `cordata alert UNIT`, which alert@.service runs."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import replace

import click

from cordata import clock, events
from cordata.alert import Alerter, Spool
from cordata.app_loader import salvage
from cordata.cli.operator import CommandResult, Operator, operator_options, unknown
from cordata.cli.options import debug_option, ids_argument
from cordata.command_context import become_owner
from cordata.context_factory import smtp_login
from cordata.core.alert import AlertGroup, group_of
from cordata.errors import ConfigError
from cordata.log import fields, logger
from cordata.network import warn_if_restricted
from cordata.operate.actions import clear_alerts
from cordata.store import Row, Tx
from cordata.systemd import install_logging
from cordata.terminal import Command, Group, config_option, limit_option, show_page, show_record

_COLUMNS = ("fingerprint", "title", "count", "pending", "last_at", "mail", "mailed_at", "place")
#: [mail] timeout_s of `cordata alert` at most. systemd ends alert@ after 60 s (TimeoutStartSec=),
#: and an alert that could not be mailed has to be in the host's file before.
MAIL_S = 20.0


@click.group(cls=Group)
def alerts() -> None:
    """Alerts: errors with the same cause are one alert with a count.

    ALERT is the id shown in the list and in mails. The journal has every single error.
    """


@alerts.command(
    "list",
    examples="""
        cordata alerts list
        cordata alerts list --limit 5 --json
    """,
)
@limit_option
@operator_options
def list_(operator: Operator, limit: int) -> int:
    """List alerts, the latest first.

    PENDING counts occurrences that no mail has reported yet. MAIL is the state of the primary's
    last mail about the alert, MAILED the time at which the mail server accepted it; both are empty
    for alerts that a process mailed at once. If the configuration is invalid, its valid parts are
    used.
    """
    rows = operator.run_salvaged(
        lambda ctx: ctx.store.read(lambda tx: tx.fetch_all("alert.list", limit=limit + 1))
    )
    show_page([_record(row) for row in rows[:limit]], _COLUMNS, paged=False, json_=operator.json)
    if len(rows) > limit:
        click.echo("there is more: raise --limit", err=True)
    return 0


@alerts.command(
    examples="cordata alerts show 0a1b2c3d4e5f",
    exit_codes="0 done, 1 no such alert",
)
@click.argument("fingerprint", metavar="ALERT")
@operator_options
def show(operator: Operator, fingerprint: str) -> int:
    """Show one alert with the text of its latest occurrence."""
    row = operator.run_salvaged(
        lambda ctx: ctx.store.read(lambda tx: tx.fetch_one("alert.show", fingerprint=fingerprint))
    )
    if row is None:
        raise unknown("alert", fingerprint)
    record = _record(row)
    text = str(record.pop("sample"))
    show_record(record | {"text": text} if operator.json else record, json_=operator.json)
    if not operator.json:
        click.echo(f"\n{text}")
    return 0


@alerts.command(
    examples="""
        cordata alerts clear 0a1b2c3d4e5f
        cordata alerts clear --all
    """,
    exit_codes="0 done, 1 a named alert does not exist",
)
@ids_argument("fingerprints", "ALERT")
@click.option("--all", "all_", is_flag=True, help="All alerts.")
@operator_options
def clear(operator: Operator, fingerprints: tuple[str, ...], all_: bool) -> int:
    """Delete alerts with their counts and unsent reports. The next error with that cause starts a
    new alert.
    """
    if bool(fingerprints) == all_:
        raise click.UsageError("name alerts (ALERT...) or add --all")

    async def unit(tx: Tx) -> CommandResult:
        if all_:
            return CommandResult(count=await tx.execute("alert.clear_all"))
        missing = await clear_alerts(tx, fingerprints)
        return CommandResult(count=len(fingerprints) - len(missing), missing=missing)

    return operator.carry_out("cleared", lambda ctx, counter: ctx.store.run(unit))


def _record(row: Row) -> dict[str, object]:
    record: dict[str, object] = {name: row[name] for name in row.keys()}
    return record | {"urgent": bool(record["urgent"])}


@click.command(
    cls=Command,
    examples="""
        systemctl start alert@worker@0.service     (what OnFailure= does)
        cordata alert worker@0.service
    """,
    exit_codes="""
        0 the failure is in the journal, and mailed if a mail was due; 1 the mail could not be sent:
        the primary sends it when the mail server is back
    """,
)
@click.argument("unit")
@config_option
@debug_option
def alert(unit: str, config: str | None, debug: bool) -> int:
    """Report that UNIT failed: in the journal, and by mail at most once per kind of failure and
    cool-down.

    Needs neither the store nor a valid configuration, since these may be the cause of the failure.
    The primary stores the alert afterwards, see `cordata alerts list`.
    """
    install_logging("debug" if debug else "info", role="alert")
    settings = salvage(config, logger("cordata.config").error)
    warn_if_restricted(settings)
    try:
        login = smtp_login(settings)
    except ConfigError as error:
        logger("cordata.alert").error("%s", error)
        login = None
    become_owner(settings.paths.state)
    text = describe(unit, os.environ)
    group = failure_of(unit, text, os.environ)
    directories = [settings.paths.state, settings.paths.runtime]
    later: list[AlertGroup] = []
    alerter = Alerter(
        settings.alert,
        replace(settings.mail, timeout_s=min(settings.mail.timeout_s, MAIL_S)),
        login=login,
        directories=directories,
        postpone=later.append,
    )
    log = logger("cordata.alert")
    log.error("%s", text.split("\n", 1)[0], extra=fields(events.UNIT_FAILED, cause=unit))
    sent = not alerter.mails or alerter.mail([group])
    if alerter.mails and not later:
        group.pending = 0
    try:
        Spool(directories).add([group])
    except OSError as error:
        log.error("cannot spool the alert for the primary: %s", error)
    return 0 if sent else 1


def failure_of(unit: str, text: str, environ: Mapping[str, str]) -> AlertGroup:
    """The alert that a unit failed; `environ` has the MONITOR_* variables of systemd.

    Another result, exit code or status is another alert, so each count is of one kind of failure.
    """
    how = ("MONITOR_SERVICE_RESULT", "MONITOR_EXIT_CODE", "MONITOR_EXIT_STATUS")
    return group_of(
        unit,
        text,
        place=f"{socket.gethostname()} {unit}",
        now_us=clock.now_us(),
        urgent=True,
        key="\0".join([unit, *(environ.get(name, "") for name in how)]),
        # The invocation is not a secret, and useless if masked.
        ids=[environ.get("MONITOR_INVOCATION_ID", "")],
    )


def describe(unit: str, environ: Mapping[str, str]) -> str:
    """The alert's text, from the MONITOR_* variables that systemd sets (systemd.exec(5))."""
    result = environ.get("MONITOR_SERVICE_RESULT", "")
    code = environ.get("MONITOR_EXIT_CODE", "")
    status = environ.get("MONITOR_EXIT_STATUS", "")
    invocation = environ.get("MONITOR_INVOCATION_ID", "")
    what = f": {result}" if result else ""
    if result == "success":  # systemd had restarted the unit before it set the variables
        what, code = ", and was started again", ""
    if code:
        what += f" ({code}, status {status})" if status else f" ({code})"
    lines = [f"{unit} failed{what}", "", f"Look: systemctl status {unit}"]
    where = f"_SYSTEMD_INVOCATION_ID={invocation}" if invocation else f"-u {unit}"
    lines.append(f"      journalctl {where}")
    return "\n".join(lines)
