"""The pool's answers for people; `--json` prints them as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from cordata.cli.view import printable, show_table


def show_status(answer: Mapping[str, Any]) -> None:
    """Print pools, workers with their children, and what became of calls."""
    show_table(
        [{"pool": name, **pool} for name, pool in answer["pools"].items()],
        ["pool", "ready", "busy", "drained", "other", "waiting", "wait_now_ms", "wait_max_ms"],
    )
    click.echo()
    children = [
        _child(worker, child) for worker in answer["workers"] for child in worker["children"]
    ]
    children += [
        {**dict.fromkeys(_COLUMNS, None), "worker": worker["worker"], "pool": worker["pool"]}
        for worker in answer["workers"]
        if not worker["children"]
    ]
    show_table(children, _COLUMNS)
    if not children:
        click.echo("no worker is connected")
    click.echo()
    for name, pool in answer["pools"].items():
        known = ", ".join(map(printable, pool["commands"])) or "none"
        click.echo(f"commands   {printable(name)}: {known}")
    for worker in answer["workers"]:
        if why := worker.get("start_error"):
            click.echo(printable(f"no start   child of worker {worker['worker']}: {why}"))
    outcomes, restarts, recycles = (
        ", ".join(f"{count} {name}" for name, count in sorted(answer[key].items())) or "none"
        for key in ("outcomes", "restarts", "recycles")
    )
    click.echo(f"calls      {answer['calls']:,}, {answer['calls_per_s']:,.1f}/s now")
    click.echo(f"outcomes   {outcomes}; {answer['retries']} run again")
    click.echo(f"restarts   {restarts}; replaced: {recycles}")
    found = answer["sessions"]
    click.echo(f"sessions   {found['count']:,} with {found['bytes']:,} bytes")
    if answer["journal"]["degraded"]:
        click.echo("file       NOT SAVED: sessions are in memory only")
    for command, left_s in answer["poisoned"].items():
        click.echo(f"refused    {command}: it killed its children; for {left_s:g} s more")


_COLUMNS = [
    "worker",
    "pool",
    "state",
    "for_s",
    "pid",
    "age_s",
    "calls",
    "rss_mib",
    "command",
    "running_s",
]


def _child(worker: Mapping[str, Any], child: Mapping[str, Any]) -> dict[str, Any]:
    call = child.get("call")
    rss = child["rss_bytes"]
    state = child["state"]
    if worker["draining"]:
        state += ", drained"
    if child["spare"]:
        state += ", spare"
    if child["lent"]:
        state += ", lent"
    return {
        "worker": worker["worker"],
        "pool": worker["pool"],
        "state": state,
        "for_s": round(child["state_s"], 1),
        "pid": child["pid"],
        "age_s": child["age_s"],
        "calls": child["calls"],
        "rss_mib": None if rss is None else round(rss / 1048576, 1),
        "command": call["command"] if call else None,
        "running_s": round(child["state_s"], 1) if call else None,
    }


def show_sessions(answer: Mapping[str, Any]) -> None:
    """Print one page, and where the next one starts."""
    columns = ["id", "bytes", "idle_s", "expires_in_s", "ttl_s", "affinity", "worker"]
    show_table(answer["items"], columns)
    if not answer["items"]:
        click.echo("nothing there", err=True)
    if answer["next"] is not None:
        click.echo(f"there is more: --after {answer['next']}", err=True)
