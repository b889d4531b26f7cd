"""`cordata server`: the foreground supervisor."""

from __future__ import annotations

from collections.abc import Sequence

import click

from cordata.cli.options import shared


@click.command(
    epilog="""Examples:

\b
  cordata server --workers 4 --app shop.app:app --state ./data
  cordata server --workers 4 --listen 127.0.0.1:8080 --listen /run/shop.sock --state ./data
  cordata server --workers 4 --test-mode

Prints the line `ready URL` when all processes are ready. Exit codes: 0 all ended cleanly, 1 one
crashed, or in test mode an event became a dead letter, 78 the configuration cannot be used."""
)
@click.option(
    "--workers",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    help="Number of workers.",
)
@click.option(
    "--listen",
    multiple=True,
    metavar="ADDR",
    help="HOST:PORT, :PORT or /path.sock; may be repeated.  [default: 127.0.0.1:8080]",
)
@click.option(
    "--state",
    type=click.Path(file_okay=False),
    help="Directory for all files of this server, instead of [paths].",
)
@click.option(
    "--test-mode",
    is_flag=True,
    help="Handle open events and those that they cause, without waiting for retries, then exit.",
)
@click.option("--restart", is_flag=True, help="Restart processes that crash or are terminated.")
@click.option(
    "--watchdog",
    type=click.FloatRange(min=0),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="Abort a process that sends no watchdog ping for this long; 0: never.",
)
@click.option(
    "--no-preload",
    is_flag=True,
    help="Import the application in each process instead of once before forking.",
)
@shared
def server(
    workers: int,
    listen: Sequence[str],
    state: str | None,
    test_mode: bool,
    restart: bool,
    watchdog: float,
    no_preload: bool,
    config: str | None,
    app: str | None,
    debug: bool,
) -> int:
    """Run primary and workers in the foreground, as systemd would.

    SIGINT, SIGTERM or SIGHUP stops the workers, then the primary; each step takes at most 35 s.
    """
    from cordata.cli import main
    from cordata.config import choose_app, find_file, open_document
    from cordata.supervisor import Supervisor
    from cordata.systemd import install_hooks, install_logging

    # Report an error here, before any file is created: else each child would report it.
    choose_app(open_document(find_file(config)), app)
    install_logging("debug" if debug else "info", role="server")
    install_hooks()
    supervisor = Supervisor(
        app=app,
        workers=workers,
        listen=listen,
        config=config,
        state=state,
        test_mode=test_mode,
        debug=debug,
        restart=restart,
        watchdog_s=watchdog,
        on_ready=_say_ready,
        program=None if no_preload else main,
    )
    return supervisor.run()


def _say_ready(urls: Sequence[str]) -> None:
    if urls:
        click.echo(f"ready {' '.join(urls)}")
