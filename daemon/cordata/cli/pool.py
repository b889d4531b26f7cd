"""`cordata pool status|sessions|drain|recycle`: the workers' child processes and the sessions."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import click

from cordata import exit_codes
from cordata.app_loader import load_runtime
from cordata.cli.operator import Operator, operator_options
from cordata.cli.pool_sockets import check_listening
from cordata.command_context import become_owner
from cordata.config import find_file
from cordata.context_factory import pool_directory
from cordata.errors import PoolTransient, PoolUnavailable
from cordata.pool import SyncClient
from cordata.systemd.hint import has_units, log_hint
from cordata.terminal import (
    Group,
    limit_option,
    printable,
    report,
    show_json,
    show_page,
    show_table,
)

#: A running worker answers at once.
_TIMEOUT_S = 10.0
#: Of `recycle --wait`: seconds between checks; how long a worker that restarts may be away.
_CHECK_S, _AWAY_S = 0.1, 30.0
_POOL_COLUMNS = ("pool", "workers", "ready", "busy", "drained", "other", "waiting")
_COLUMNS = (
    "worker",
    "pool",
    "state",
    "pid",
    "age_s",
    "calls",
    "failed",
    "rss_mib",
    "command",
    "running_s",
)
_SESSION_COLUMNS = ("id", "bytes", "expires_in_s", "ttl_s", "affinity", "worker")


@click.group(
    cls=Group,
    examples="""
        cordata pool status
        cordata pool sessions --limit 20
        cordata pool drain 2; cordata pool drain 2 --undo
        cordata pool recycle 0
    """,
    exit_codes="""
        0 done, 1 failed, or not allowed for this user, 2 wrong usage, 75 no worker with child
        processes answers, 78 the configuration cannot be used
    """,
)
def pool() -> None:
    """Show the workers' child processes and sessions; drain and replace children.

    Only root and the user of the workers may drain and recycle.
    """


@pool.command(
    examples="cordata pool status --json | jq .workers",
)
@operator_options
def status(operator: Operator) -> int:
    """Show the workers and the command of each child."""
    # Looked up before `_ask` becomes the owner, who may not trust or see the file.
    look = log_hint("-u 'worker@*'", units=has_units(find_file(operator.config)))

    def act(client: SyncClient) -> dict[str, Any]:
        answer = client.status()
        if not any(worker["answers"] for worker in answer["workers"]):
            raise PoolUnavailable(f"no worker answers: {look}")
        return answer

    return _ask(operator, act, _show_status)


@pool.command(
    short_help="List sessions, without their data.",
    examples="cordata pool sessions --limit 20 --after 3f2a",
)
@limit_option
@click.option("--after", metavar="ID", default="", help="Start after this session: the next page.")
@operator_options
def sessions(operator: Operator, limit: int, after: str) -> int:
    """List sessions, their size, and when they expire; their data is not shown."""

    def act(client: SyncClient) -> dict[str, Any]:
        try:
            found = client.list_sessions(after=after, limit=limit)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--after") from None
        items = [{name: one[name] for name in _SESSION_COLUMNS} for one in found["sessions"]]
        return {"items": items, "next": found["next"] or None}

    return _ask(
        operator,
        act,
        lambda answer: show_page(
            answer["items"], _SESSION_COLUMNS, next=answer["next"], json_=False
        ),
    )


@pool.command(
    examples="cordata pool drain 2",
)
@click.argument("worker")
@click.option("--undo", is_flag=True, help="Send it calls again.")
@operator_options
def drain(operator: Operator, worker: str, undo: bool) -> int:
    """Send no more calls to WORKER; running ones end normally."""
    text = "gets calls again" if undo else "gets no more calls"
    return _ask(
        operator,
        lambda client: dict(client.drain(worker, not undo)),
        lambda _: click.echo(f"worker {worker} {text}"),
    )


@pool.command(
    examples="cordata pool recycle 0 --wait",
)
@click.argument("worker")
@click.option(
    "--wait",
    is_flag=True,
    help="Wait until the new children take calls.",
)
@operator_options
def recycle(operator: Operator, worker: str, wait: bool) -> int:
    """Replace WORKER's children, each by one that is warm."""

    def act(client: SyncClient) -> dict[str, Any]:
        return _recycle_and_wait(client, worker) if wait else dict(client.recycle(worker))

    def show(answer: dict[str, Any]) -> None:
        if wait:
            pids = ", ".join(map(str, answer["children"]))
            click.echo(f"worker {worker} has child {pids}")
        else:
            click.echo(f"worker {worker} replaces its children as soon as new ones are warm")

    return _ask(operator, act, show)


def _ask(
    operator: Operator,
    act: Callable[[SyncClient], dict[str, Any]],
    show: Callable[[dict[str, Any]], None],
) -> int:
    config = operator.with_state_dir(load_runtime(operator.config))
    # Workers accept admin requests from their user and from root; root must leave no own files.
    become_owner(config.paths.state)
    path = pool_directory(config)
    try:
        check_listening(config)
        with SyncClient(path, timeout=_TIMEOUT_S) as client:
            answer = act(client)
    except PoolTransient as error:
        report(error)
        return exit_codes.BUSY
    show_json(answer) if operator.json else show(answer)
    return 0


def _show_status(answer: Mapping[str, Any]) -> None:
    """Print pools, workers with their children, commands, and errors of children at their start."""
    workers = answer["workers"]
    show_table(_pools(workers), _POOL_COLUMNS)
    click.echo()
    children = [_child(worker, child) for worker in workers for child in worker["children"]]
    children += [
        {
            **dict.fromkeys(_COLUMNS, None),
            "worker": worker["worker"],
            "pool": worker["pool"],
            "state": None if worker["answers"] else "no answer",
        }
        for worker in workers
        if not worker["children"]
    ]
    show_table(children, _COLUMNS)
    click.echo()
    known: dict[str, set[str]] = {}
    for worker in workers:
        if worker["answers"]:
            known.setdefault(worker["pool"], set()).update(worker["commands"])
    for name, commands in sorted(known.items()):
        text = ", ".join(map(printable, sorted(commands))) or "none"
        click.echo(f"commands   {printable(name)}: {text}")
    for worker in workers:
        if why := worker["start_error"]:
            click.echo(printable(f"no start   child of worker {worker['worker']}: {why}"))
    total = Counter[str]()
    for worker in workers:
        total.update({key: worker[key] for key in ("started", "crashed", "killed")})
    text = f"{total['started']:,} started, {total['crashed']:,} crashed, {total['killed']:,} killed"
    click.echo(f"children   {text}")
    if found := answer.get("sessions"):
        click.echo(f"sessions   {found['count']:,} with {found['bytes']:,} bytes")


def _pools(workers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The number of children in each state, by pool."""
    rows: dict[str, dict[str, Any]] = {}
    for worker in workers:
        row = rows.setdefault(worker["pool"], {**dict.fromkeys(_POOL_COLUMNS, 0)})
        row["pool"] = worker["pool"]
        row["workers"] += 1
        for child in worker["children"]:
            state = child["state"]
            if worker["drained"] and state in ("ready", "busy", "draining"):
                state = "drained"
            row[state if state in ("ready", "busy", "drained") else "other"] += 1
            row["waiting"] += child["waiting"]
    return [rows[name] for name in sorted(rows)]


def _child(worker: Mapping[str, Any], child: Mapping[str, Any]) -> dict[str, Any]:
    state = child["state"]
    if worker["drained"]:
        state += ", drained"
    if child["spare"]:
        state += ", spare"
    running = bool(child["command"])
    return {
        "worker": worker["worker"],
        "pool": worker["pool"],
        "state": state,
        "pid": child["pid"],
        "age_s": round(child["age_s"], 1),
        "calls": child["calls"],
        "failed": child["failed"],
        "rss_mib": round(child["rss_bytes"] / 1048576, 1) if child["rss_bytes"] else None,
        "command": child["command"] if running else None,
        "running_s": round(child["running_s"], 1) if running else None,
    }


def _recycle_and_wait(client: SyncClient, worker: str) -> dict[str, Any]:
    """Replace the children and wait until it is done. Returns the pids of the former and the new.

    Prints to stderr why no new child starts. Raises: PoolError; an error during the wait does not
    stop the replacement.
    """
    found = _look(client, worker)
    former = _warm(found) if found is not None else []
    client.recycle(worker)
    seen = time.monotonic()
    said = ""
    while True:
        time.sleep(_CHECK_S)
        now, found = time.monotonic(), _look(client, worker)
        if found is None:
            if now >= seen + _AWAY_S:
                raise PoolUnavailable(f"worker {worker!r} no longer answers")
            continue
        seen = now
        warm, why = _warm(found), found["start_error"]
        if len(warm) >= max(1, len(former)) and not set(warm) & set(former):
            return {"worker": worker, "former": former, "children": warm}
        if why and why != said:
            said = why
            text = f"still waiting: no new child of worker {worker} starts: {why}"
            click.echo(printable(text), err=True)


def _look(client: SyncClient, worker: str) -> dict[str, Any] | None:
    """The status of a worker; None if it does not answer."""
    for one in client.status()["workers"]:
        if one["worker"] == worker and one["answers"]:
            return dict(one)
    return None


def _warm(worker: dict[str, Any]) -> list[int]:
    """Pids of the children that take calls."""
    return [child["pid"] for child in worker["children"] if child["state"] in ("ready", "busy")]
