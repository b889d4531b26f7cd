"""`cordata pool`: the manager's role, as its unit calls it; and what an operator does with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from cordata.cli.options import limit_option, operator, shared

if TYPE_CHECKING:
    from cordata.pool import SyncClient

#: sysexits(3) EX_TEMPFAIL: nobody answers, now.
EXIT_TRY_AGAIN = 75
#: A manager that is there answers at once.
_PATIENCE_S = 10.0


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
        from cordata.opening import make_state  # brings the store along, which is of no use here

        make_state(checked)
    return run_pool(checked, path)


@pool.command(epilog="Example: cordata pool status --json | jq .pools")
@operator
def status(json_: bool, directory: str | None, config: str | None, debug: bool) -> int:
    """Show workers and their children, queues, calls and sessions."""
    from cordata.cli.poolview import show_status

    return _ask(config, directory, lambda client: client.status(), show_status, json_=json_)


@pool.command(
    short_help="List sessions, without what they hold.",
    epilog="Example: cordata pool sessions --limit 20 --after 3f2a",
)
@limit_option
@click.option("--after", metavar="ID", default="", help="Go on behind this session.")
@operator
def sessions(
    limit: int, after: str, json_: bool, directory: str | None, config: str | None, debug: bool
) -> int:
    """List sessions, their size, when they were used and end; what they hold is not shown."""
    from cordata.cli.poolview import show_sessions

    return _ask(
        config,
        directory,
        lambda client: client.list_sessions(after=after, limit=limit),
        show_sessions,
        json_=json_,
    )


@pool.command(epilog="Example: cordata pool drain 2")
@click.argument("worker")
@click.option("--undo", is_flag=True, help="Give it calls again.")
@operator
def drain(
    worker: str, undo: bool, json_: bool, directory: str | None, config: str | None, debug: bool
) -> int:
    """Give WORKER no more calls; the one in hand goes on."""
    text = "gets calls again" if undo else "gets no more calls"
    return _ask(
        config,
        directory,
        lambda client: dict(client.drain(worker, not undo)),
        lambda _: click.echo(f"worker {worker} {text}"),
        json_=json_,
    )


@pool.command(epilog="Example: cordata pool recycle 0 --wait")
@click.argument("worker")
@click.option(
    "--wait",
    is_flag=True,
    help="Until another child takes its calls; without that, or with Ctrl-C, it goes on alone.",
)
@operator
def recycle(
    worker: str, wait: bool, json_: bool, directory: str | None, config: str | None, debug: bool
) -> int:
    """Replace WORKER's child as soon as another one is warm."""
    from cordata.cli.recycling import recycle_and_wait

    def act(client: SyncClient) -> dict[str, Any]:
        return recycle_and_wait(client, worker) if wait else dict(client.recycle(worker))

    def show(answer: dict[str, Any]) -> None:
        is_now = f"has child {answer['child']}"
        will_be = "replaces its child as soon as another one is warm"
        click.echo(f"worker {worker} {is_now if wait else will_be}")

    return _ask(config, directory, act, show, json_=json_)


def _ask(
    config: str | None,
    directory: str | None,
    act: Callable[[SyncClient], dict[str, Any]],
    show: Callable[[dict[str, Any]], None],
    *,
    json_: bool,
) -> int:
    from cordata.cli import report
    from cordata.cli.reaching import listening
    from cordata.cli.session import placed
    from cordata.cli.view import show_json
    from cordata.config import build, find_file, open_document
    from cordata.connection import become_owner
    from cordata.errors import PoolTransient
    from cordata.opening import pool_socket
    from cordata.pool import SyncClient

    place = placed(build(open_document(find_file(config)), None), directory)
    # The manager takes orders from its own user and from root; no file of root's is left behind.
    become_owner(place.paths.state)
    path = pool_socket(place)
    try:
        listening(place)
        with SyncClient(path, name="cordata pool", timeout=_PATIENCE_S, operator=True) as client:
            answer = act(client)
    except PoolTransient as error:
        report(error)
        return EXIT_TRY_AGAIN
    if json_:
        show_json(answer)
    else:
        show(answer)
    return 0
