"""`cordata alert UNIT`: what alert@.service runs when a unit failed."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from cordata.cli.options import config_option

if TYPE_CHECKING:
    from cordata.alert import Spool


@click.command(
    epilog="""Examples:

\b
  systemctl start alert@worker@0.service     (what OnFailure= does)
  cordata alert worker@0.service

Exit codes: 0 it is in the journal and mailed if a mail was due, 1 the mail could not be sent: the
primary sends it when the server is back."""
)
@click.argument("unit")
@config_option
@click.option("--debug", is_flag=True, help="Log everything; show tracebacks.")
def alert(unit: str, config: str | None, debug: bool) -> int:
    """Say that UNIT failed: in the journal, and by mail at most once per cool-down.

    Needs neither the store nor a valid configuration: a broken one may be what failed the unit.
    The primary stores it afterwards, see `cordata alerts list`.
    """
    from cordata import events
    from cordata.alert import Alerter, Spool
    from cordata.connection import become_owner
    from cordata.errors import ConfigError
    from cordata.loading import salvage
    from cordata.log import logger
    from cordata.opening import smtp_login
    from cordata.systemd import install_logging

    install_logging("debug" if debug else "info", role="alert")
    settings = salvage(config, logger("cordata.config").error)
    try:
        login = smtp_login(settings)
    except ConfigError as error:
        logger("cordata.alert").error("%s", error)
        login = None
    become_owner(settings.paths.state)
    text = describe(unit, os.environ)
    directories = [settings.paths.state, settings.paths.runtime]
    later: list[int] = []
    alerter = Alerter(
        settings.alert,
        settings.mail,
        login=login,
        directories=directories,
        keep=lambda cause, text, count: later.append(count),
    )
    sent = alerter.alert(unit, text, message_id=events.UNIT_FAILED)
    pending = 1 if later or not alerter.mails else 0
    leave(unit, text, Spool(directories), pending=pending, environ=os.environ)
    return 0 if sent else 1


def leave(unit: str, text: str, spool: Spool, *, pending: int, environ: Mapping[str, str]) -> None:
    """Leave it to the primary: it stores the alert, and mails it if it is `pending`.

    What failed in another way is another alert: the count of one is how often just that happened.
    """
    from cordata import clock
    from cordata.core.alert import group_of
    from cordata.log import logger

    place, now_us = f"{socket.gethostname()} {unit}", clock.now_us()
    how = ("MONITOR_SERVICE_RESULT", "MONITOR_EXIT_CODE", "MONITOR_EXIT_STATUS")
    key = "\0".join([unit, *(environ.get(name, "") for name in how)])
    invocation = environ.get("MONITOR_INVOCATION_ID", "")  # nobody's secret, and of use whole only
    group = group_of(
        unit,
        text,
        place=place,
        now_us=now_us,
        urgent=True,
        pending=pending,
        key=key,
        ids=[invocation],
    )
    try:
        spool.add([group])
    except OSError as error:
        logger("cordata.alert").error("the alert cannot be kept for the primary: %s", error)


def describe(unit: str, environ: Mapping[str, str]) -> str:
    """What is known of the failure: the manager passes it on in MONITOR_* (systemd.exec(5))."""
    result = environ.get("MONITOR_SERVICE_RESULT", "")
    code = environ.get("MONITOR_EXIT_CODE", "")
    status = environ.get("MONITOR_EXIT_STATUS", "")
    invocation = environ.get("MONITOR_INVOCATION_ID", "")
    what = f": {result}" if result else ""
    if result == "success":  # the manager looked when it was on its next start
        what, code = ", and was started again", ""
    if code:
        what += f" ({code}, status {status})" if status else f" ({code})"
    lines = [f"{unit} failed{what}", "", f"Look: systemctl status {unit}"]
    where = f"_SYSTEMD_INVOCATION_ID={invocation}" if invocation else f"-u {unit}"
    lines.append(f"      journalctl {where}")
    return "\n".join(lines)
