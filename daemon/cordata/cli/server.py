"""`cordata server`: the foreground supervisor."""

from __future__ import annotations

from collections.abc import Sequence

import click

from cordata.cli.options import shared
from cordata.config import choose_app, find_file, open_document
from cordata.log import logger
from cordata.supervisor import Supervisor
from cordata.systemd import install_logging
from cordata.terminal import Command
from cordata.unhandled import install_hooks


@click.command(
    cls=Command,
    examples="""
        cordata server --workers 4 --app shop.app:app --state ./data
        cordata server --workers 4 --listen 127.0.0.1:8080 --listen /run/shop.sock --state ./data
        cordata server --workers 4 --test-mode
        cordata server --reload --config myapp/cordata.toml
    """,
    epilog="Prints the line `ready URL` when all processes are ready.",
    exit_codes="""
        0 all ended cleanly, 1 one crashed, or in test mode an event became a dead letter, 78 the
        configuration cannot be used
    """,
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
@click.option(
    "--reload",
    "reload_",
    is_flag=True,
    help="Start again when a file of the application changes (for development).",
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
    reload_: bool,
    config: str | None,
    app: str | None,
    debug: bool,
) -> int:
    """Run primary and workers in the foreground, as systemd would.

    SIGINT, SIGTERM or SIGHUP stops the workers, then the primary; each step takes at most 35 s.

    With --reload, requests wait while the processes are started again. If the application cannot be
    imported, its traceback is shown and the former code serves until the next change. It needs the
    library watchfiles.
    """
    from cordata.cli import main  # which names this module

    # Report an error here, before any file is created: else each child would report it.
    document = open_document(find_file(config))
    chosen = choose_app(document, app)
    install_logging("debug" if debug else "info", role="server")
    install_hooks()
    file = document.path or "no configuration file"
    logger("cordata.server").info("application %s, %s", chosen.import_, file)
    if reload_:
        # It imports the application's side, which the supervisor itself does without.
        from cordata.supervisor.reload import Reloader, directories_of

        if test_mode:
            raise click.UsageError("--reload and --test-mode cannot be combined")
        values = {
            **{"--workers": workers, "--watchdog": watchdog},
            **{"--state": state, "--config": config, "--app": app},
        }
        flags = {"--restart": restart, "--no-preload": no_preload, "--debug": debug}
        reloader = Reloader(
            [
                "server",
                *(f"{name}={value}" for name, value in values.items() if value is not None),
                *(name for name, given in flags.items() if given),
            ],
            listen=listen,
            config=config,
            app=app,
            directories=directories_of(document, chosen),
        )
        return reloader.run()
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
