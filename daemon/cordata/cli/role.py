"""`cordata worker N`, `cordata primary`: the long-running roles, which systemd units run."""

from __future__ import annotations

import click

from cordata.cli.options import shared
from cordata.terminal import Command


def _instance(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    # The value becomes part of file names, and is the N of `[worker.N]`.
    if not value.isascii() or not value.isdecimal():
        raise click.BadParameter("must be a number, as in worker@0")
    return value


@click.command(
    cls=Command,
    examples="""
        systemctl start worker@0
        cordata server --workers 1
    """,
)
@click.argument("instance", metavar="N", callback=_instance)
@click.option("--test-mode", is_flag=True, help="Handle all open work, then exit.")
@click.option(
    "--wait-for-config",
    is_flag=True,
    help="If the configuration is invalid, answer 503 until a reload instead of exiting with 78.",
)
@shared
def worker(
    instance: str,
    test_mode: bool,
    wait_for_config: bool,
    config: str | None,
    app: str | None,
    debug: bool,
) -> int:
    """Run worker N on the sockets that the service manager passes."""
    from cordata.errors import ConfigError

    try:
        return run(
            "worker", instance=instance, test_mode=test_mode, config=config, app=app, debug=debug
        )
    except ConfigError as error:
        if not wait_for_config:
            raise
        invalid = error
    from cordata.app_loader import salvage
    from cordata.wiring.event_loop import run_on_uvloop
    from cordata.wiring.worker import run_without_config

    usable = salvage(config, lambda problem: None)  # the error names the problems
    return run_on_uvloop(lambda: run_without_config(usable, instance, invalid))


@click.command(
    cls=Command,
    examples="systemctl start primary",
)
@shared
def primary(config: str | None, app: str | None, debug: bool) -> int:
    """Run the primary: migrations, then the work that only one process may do."""
    return run("primary", config=config, app=app, debug=debug)


def run(
    name: str,
    *,
    instance: str = "",
    test_mode: bool = False,
    config: str | None,
    app: str | None,
    debug: bool,
) -> int:
    """Set up logging, load the configuration, run the role. Returns its exit code.

    Imports what this role needs, and that late: an error is then in the journal.
    """
    from cordata.systemd import install_logging, set_level
    from cordata.unhandled import install_hooks

    install_logging("debug" if debug else "info", role=f"{name}@{instance}" if instance else name)
    install_hooks()

    from cordata.app_loader import load
    from cordata.context_factory import make_state
    from cordata.network import warn_if_restricted
    from cordata.wiring.event_loop import run_on_uvloop
    from cordata.wiring.role import Role

    loaded = load(config, app)
    if not debug:
        set_level(loaded.config.log.level)
    make_state(loaded.config)
    warn_if_restricted(loaded.config)
    if name == "worker":
        from cordata.wiring.worker import run_worker

        role = Role(loaded=loaded, instance=instance, test_mode=test_mode)
        if loaded.config.status.listen and not test_mode:
            from cordata.status.page import page_service

            role = Role(loaded=loaded, instance=instance, observers=page_service(loaded))
        return run_on_uvloop(lambda: run_worker(role))
    from cordata.wiring.primary import run_primary

    return run_on_uvloop(lambda: run_primary(Role(loaded=loaded)))
