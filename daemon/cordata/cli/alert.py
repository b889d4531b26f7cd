"""`cordata alert UNIT`: what alert@.service runs when a unit failed."""

from __future__ import annotations

import os
from collections.abc import Mapping

import click


@click.command(
    epilog="""Examples:

\b
  systemctl start alert@worker@0.service     (what OnFailure= does)
  cordata alert worker@0.service

Exit codes: 0 it is in the journal and mailed if a mail was due, 1 the mail could not be sent."""
)
@click.argument("unit")
@click.option(
    "--config",
    type=click.Path(dir_okay=False),
    envvar="CORDATA_CONFIG",
    help="Configuration file.  [default: /etc/cordata/cordata.toml]",
)
@click.option("--debug", is_flag=True, help="Log everything; show tracebacks.")
def alert(unit: str, config: str | None, debug: bool) -> int:
    """Say that UNIT failed: in the journal, and by mail at most once per cool-down.

    Needs neither the store nor a valid configuration: a broken one may be what failed the unit.
    """
    from cordata import events
    from cordata.alert import Alerter
    from cordata.connection import become_owner
    from cordata.errors import ConfigError
    from cordata.loading import salvage
    from cordata.log import logger
    from cordata.opening import smtp_login
    from cordata.systemd import install_logging

    install_logging("debug" if debug else "info", role="alert")
    settings = salvage(config)
    try:
        login = smtp_login(settings)
    except ConfigError as error:
        logger("cordata.alert").error("%s", error)
        login = None
    become_owner(settings.paths.state)
    alerter = Alerter(
        settings.alert,
        settings.mail,
        login=login,
        directories=[settings.paths.state, settings.paths.runtime],
    )
    sent = alerter.alert(unit, describe(unit, os.environ), message_id=events.UNIT_FAILED)
    return 0 if sent else 1


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
