"""`cordata pool`: the manager's role, as its unit calls it; and what an operator does with it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from cordata.cli.operator import Operator, operator_options
from cordata.cli.options import limit_option, shared
from cordata.terminal import printable, report, show_json, show_page, show_table

if TYPE_CHECKING:
    from cordata.pool import SyncClient

#: sysexits(3) EX_TEMPFAIL: nobody answers, now.
EXIT_TRY_AGAIN = 75
#: A manager that is there answers at once.
_PATIENCE_S = 10.0
#: Of `recycle --wait`: how often it looks; when it asks again, since the order may have died with a
#: connection, and one who has it already takes no notice; how long a worker that connects again, or
#: starts again, may be away.
_LOOK_S, _AGAIN_S, _AWAY_S = 0.1, 5.0, 30.0
_COLUMNS = (
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
)
_SESSION_COLUMNS = ("id", "bytes", "idle_s", "expires_in_s", "ttl_s", "affinity", "worker")


@click.group(
    invoke_without_command=True,
    epilog="""Examples:

\b
  cordata pool status
  cordata pool sessions --limit 20
  cordata pool drain 2; cordata pool drain 2 --undo
  cordata pool recycle 0

Exit codes: 0 done, 1 failed, or not for this user, 2 wrong usage, 75 nobody answers at the pool's
socket, 78 the configuration cannot be used. Only root and the user of the pool may look at it.""",
)
@shared
@click.pass_context
def pool(ctx: click.Context, config: str | None, app: str | None, debug: bool) -> int:
    """Run the pool's manager (pool.service) on the socket that was passed; or look at one."""
    if ctx.invoked_subcommand is not None:
        return 0
    return run_role(config, debug=debug)


def run_role(config: str | None, *, debug: bool) -> int:
    """Set up logging, read the configuration, run the manager. Returns its exit code."""
    from cordata.systemd import install_hooks, install_logging, set_level

    install_logging("debug" if debug else "info", role="pool")
    install_hooks()

    from cordata.config import build, find_file, open_document
    from cordata.wiring.pool import run_pool

    path = find_file(config)
    checked = build(open_document(path), None)
    if not debug:
        set_level(checked.log.level)
    if not checked.paths.state.exists():
        from cordata.factory import make_state  # brings the store along, which is of no use here

        make_state(checked)
    return run_pool(checked, path)


@pool.command(epilog="Example: cordata pool status --json | jq .pools")
@operator_options
def status(operator: Operator) -> int:
    """Show workers and their children, queues, calls and sessions."""
    return _ask(operator, lambda client: client.status(), _show_status)


@pool.command(
    short_help="List sessions, without what they hold.",
    epilog="Example: cordata pool sessions --limit 20 --after 3f2a",
)
@limit_option
@click.option("--after", metavar="ID", default="", help="Go on behind this session.")
@operator_options
def sessions(operator: Operator, limit: int, after: str) -> int:
    """List sessions, their size, when they were used and end; what they hold is not shown."""

    return _ask(
        operator,
        lambda client: client.list_sessions(after=after, limit=limit),
        lambda answer: show_page(
            answer["items"], _SESSION_COLUMNS, next=answer["next"], json_=False
        ),
    )


@pool.command(epilog="Example: cordata pool drain 2")
@click.argument("worker")
@click.option("--undo", is_flag=True, help="Give it calls again.")
@operator_options
def drain(operator: Operator, worker: str, undo: bool) -> int:
    """Give WORKER no more calls; the one in hand goes on."""
    text = "gets calls again" if undo else "gets no more calls"
    return _ask(
        operator,
        lambda client: dict(client.drain(worker, not undo)),
        lambda _: click.echo(f"worker {worker} {text}"),
    )


@pool.command(epilog="Example: cordata pool recycle 0 --wait")
@click.argument("worker")
@click.option(
    "--wait",
    is_flag=True,
    help="Wait until the new child takes calls; it is replaced without this, too.",
)
@operator_options
def recycle(operator: Operator, worker: str, wait: bool) -> int:
    """Replace WORKER's child as soon as another one is warm."""

    def act(client: SyncClient) -> dict[str, Any]:
        return _recycle_and_wait(client, worker) if wait else dict(client.recycle(worker))

    def show(answer: dict[str, Any]) -> None:
        is_now = f"has child {answer['child']}"
        will_be = "replaces its child as soon as another one is warm"
        click.echo(f"worker {worker} {is_now if wait else will_be}")

    return _ask(operator, act, show)


def _ask(
    operator: Operator,
    act: Callable[[SyncClient], dict[str, Any]],
    show: Callable[[dict[str, Any]], None],
) -> int:
    from cordata.app_loader import load_runtime
    from cordata.cli.pool_socket import check_listening
    from cordata.connection import become_owner
    from cordata.errors import PoolTransient
    from cordata.factory import pool_socket
    from cordata.pool import SyncClient

    config = operator.place(load_runtime(operator.config))
    # The manager takes orders from its own user and from root; no file of root's is left behind.
    become_owner(config.paths.state)
    path = pool_socket(config)
    try:
        check_listening(config)
        with SyncClient(path, name="cordata pool", timeout=_PATIENCE_S, operator=True) as client:
            answer = act(client)
    except PoolTransient as error:
        report(error)
        return EXIT_TRY_AGAIN
    show_json(answer) if operator.json else show(answer)
    return 0


def _show_status(answer: Mapping[str, Any]) -> None:
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


def _recycle_and_wait(client: SyncClient, worker: str) -> dict[str, Any]:
    """Have the child replaced, and wait for that; gives the pids of both.

    Meanwhile stderr hears why no child starts. Raises: PoolError; what it raises once it waits
    says nothing of the replacement, which goes on.
    """
    from cordata.errors import PoolUnavailable

    former = client.recycle(worker)["child"]
    asked = seen = time.monotonic()
    said = ""
    while True:
        time.sleep(_LOOK_S)
        now, found = time.monotonic(), _look(client, worker)
        if found is None:
            if now >= seen + _AWAY_S:
                raise PoolUnavailable(f"worker {worker!r} is not connected any more")
            continue
        seen = now
        child, why = found["child"], found["start_error"] or ""
        if child not in (None, former) and _is_warm(found, child):
            return {"worker": worker, "former": former, "child": child}
        if child == former and now >= asked + _AGAIN_S:
            asked = now
            client.recycle(worker)
        if why and why != said:
            said = why
            text = f"still waiting: no other child of worker {worker} starts: {why}"
            click.echo(printable(text), err=True)


def _look(client: SyncClient, worker: str) -> dict[str, Any] | None:
    """What the manager knows of it; None: it is not connected."""
    for one in client.status()["workers"]:
        if one["worker"] == worker and one["connected"]:
            return dict(one)
    return None


def _is_warm(worker: dict[str, Any], pid: int) -> bool:
    states = {child["pid"]: child["state"] for child in worker["children"]}
    return states.get(pid) in ("ready", "busy")
