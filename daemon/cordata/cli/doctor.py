"""`cordata doctor`: checks this host and its configuration, and says how to correct them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

import click

from cordata import exit_codes
from cordata.cli.operator import Operator, operator_options
from cordata.cli.options import app_option
from cordata.doctor.examination import examine, prepare
from cordata.doctor.finding import Finding, worst
from cordata.terminal import Command, printable, show_json

_SUMMARY = {"ok": "ok", "warning": "warnings", "failed": "failed", "skipped": "skipped"}
_COLOURS = {"ok": "green", "warning": "yellow", "failed": "red", "skipped": "bright_black"}


@click.command(
    cls=Command,
    examples="""
        cordata doctor
        cordata doctor --json --config ./cordata.toml
    """,
    exit_codes="0 nothing failed, 1 a check failed",
)
@app_option
@operator_options
def doctor(operator: Operator, app: str | None) -> int:
    """Check this host and the configuration: one line for each check, with the fix below it.

    Checks systemd, units and their drop-ins, limits, sockets, restricted networks, permissions, the
    clock, disks, backups, the store, secrets, Redis, the mail server, time zones and what the
    application checks. Changes nothing and sends no mail. Run it as root, which may see all of it.

    --json prints `state` (the worst of ok, warning, failed) and `checks`, each with `check`,
    `state`, `text` and `fix`.
    """
    findings = asyncio.run(examine(prepare(operator.config, app, place=operator.with_state_dir)))
    if operator.json:
        show_json({"state": worst(findings), "checks": [asdict(one) for one in findings]})
    else:
        _show(findings)
    return exit_codes.FAILED if worst(findings) == "failed" else 0


def _show(findings: Sequence[Finding]) -> None:
    width = max(len(one.check) for one in findings)
    for one in findings:
        state = click.style(f"{one.state:<8}", fg=_COLOURS[one.state])
        click.echo(f"{state} {one.check:<{width}}  {printable(one.text)}")
        if one.fix:
            click.echo(f"{'':<8} {'':<{width}}  fix: {printable(one.fix)}")
    counts = Counter[str](one.state for one in findings)
    click.echo(
        ", ".join(f"{counts[state]} {text}" for state, text in _SUMMARY.items() if counts[state])
    )
