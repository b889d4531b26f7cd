"""`cordata report-bug`: one archive with what a report of a bug needs."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import asdict
from pathlib import Path

import click

from cordata.cli.operator import Operator, operator_options
from cordata.cli.options import app_option
from cordata.doctor.bug_report import collect, pack
from cordata.doctor.examination import examine, mask, prepare, secret_values
from cordata.doctor.finding import worst
from cordata.doctor.host import read_units
from cordata.status.collect import collect as look
from cordata.status.judge import judge
from cordata.status.tables import document
from cordata.terminal import Command, new_file


@click.command(
    cls=Command,
    examples="""
        cordata report-bug
        cordata report-bug /tmp/report.tar.gz
    """,
)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), required=False)
@app_option
@operator_options
def report_bug(operator: Operator, file: Path | None, app: str | None) -> int:
    """Pack versions, settings, unit states, the last log lines, and what `cordata status` and
    `cordata doctor` find.

    Secrets are masked, and of events and mails only their number is in it. Look at it before you
    send it. FILE is cordata-report-DATE.tar.gz in the working directory by default; only its owner
    can read it.
    """
    name = f"cordata-report-{time.strftime('%Y%m%d-%H%M%S')}"
    path = file or Path(f"{name}.tar.gz")
    subject = prepare(operator.config, app, place=operator.with_state_dir)

    async def texts() -> dict[str, str]:
        units = await read_units()
        hidden = secret_values(subject.config)
        found = await collect(subject, operator.config, units)
        # Last: they give up root, who may read the journal.
        snapshot = await look(subject.config, with_units=operator.state_dir is None)
        state = document(snapshot, judge(snapshot))
        found["status.json"] = json.dumps(state, indent=2, ensure_ascii=False) + "\n"
        findings = await examine(subject, units=units)
        checks = {"state": worst(findings), "checks": [asdict(one) for one in findings]}
        found["doctor.json"] = json.dumps(checks, indent=2, ensure_ascii=False) + "\n"
        return {inner: mask(text, hidden) for inner, text in found.items()}

    hint = "free some space, or name another file: cordata report-bug FILE"
    with new_file(path, hint=hint) as write:
        packed = asyncio.run(texts())
        write(pack(name, packed))
    path = path.absolute()
    operator.print_result(
        {"file": str(path), "contains": list(packed)},
        f"{path} contains {', '.join(packed)}.\n"
        "Secrets are masked, and no event or mail is in it, but names of hosts and users are.\n"
        f"Look at it before you send it: tar xzOf {path} | less",
    )
    return 0
