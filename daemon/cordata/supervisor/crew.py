"""Who is started with which arguments, who is missing, and the socket that starts the pool."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from cordata.config import Config, build, find_file, open_document
from cordata.config.pool import PoolConfig
from cordata.config.sections import PathsConfig
from cordata.errors import ConfigError, CordataError
from cordata.log import logger
from cordata.supervisor.child import Child
from cordata.supervisor.listen import bind, is_taken
from cordata.supervisor.spawn import command

log = logger("cordata.server")


def crew(workers: int, arguments: tuple[list[str], list[str]], *, pool: bool) -> list[Child]:
    """The primary, the pool if it is wanted, and the workers."""
    common, of_worker = arguments
    of_pool = _without_app(common)
    others = ["primary", "pool"] if pool else ["primary"]
    return [
        *(
            Child(
                name=name,
                argv=command(name, *(of_pool if name == "pool" else common)),
                is_worker=False,
            )
            for name in others
        ),
        *(
            Child(
                name=f"worker@{n}",
                argv=command("worker", str(n), *common, *of_worker),
                is_worker=True,
            )
            for n in range(workers)
        ),
    ]


def arguments(
    config: str | Path | None, app: str | None, debug: bool, test_mode: bool
) -> tuple[list[str], list[str]]:
    """(for all, for workers only)."""
    common = ["--config", str(config)] if config is not None else []
    common += ["--app", app] if app is not None else []
    common += ["--debug"] if debug else []
    return common, ["--test-mode"] if test_mode else []


def configured(config: str | Path | None, environment: Mapping[str, str]) -> Config | None:
    """What the children will find; None: they say what is wrong with it."""
    try:
        return build(open_document(find_file(config)), None, environment)
    except ConfigError:
        return None


def listen_for_pool(paths: PathsConfig) -> socket.socket | None:
    """The pool's socket in the runtime directory; None: there can be none, and why is in the log.

    Nothing but calls of the pool needs it, so the server runs without. Raises: CordataError when
    another one listens there: its manager and ours would share the names of their workers.
    """
    path = paths.runtime / "pool.sock"
    try:
        paths.runtime.mkdir(mode=0o700, parents=True, exist_ok=True)
        sock = bind(os.fspath(path))
        path.chmod(0o660)
    except (CordataError, OSError) as error:
        if is_taken(error):
            raise CordataError(
                f"another server, or pool.service, listens on {path}",
                hint="stop it, or choose another --state; --no-pool runs without a pool",
            ) from error
        log.warning("there is no pool: %s", error)
        return None
    return sock


def warn_of_absent(pools: Mapping[str, PoolConfig], children: Sequence[Child]) -> None:
    """Say which workers a pool names that this server does not have: calls wait there in vain."""
    started = [child.name.removeprefix("worker@") for child in children if child.is_worker]
    for name, pool in pools.items():
        absent = [worker for worker in pool.workers if worker not in started]
        if absent:
            what = "worker" if len(absent) == 1 else "workers"
            alone = "" if len(absent) < len(pool.workers) else ", so nobody takes its calls"
            text = "[pool.%s] names %s %s, not started with --workers %d%s"
            log.warning(text, name, what, ", ".join(absent), len(started), alone)


def _without_app(common: list[str]) -> list[str]:
    """The manager imports no application."""
    if "--app" not in common:
        return common
    at = common.index("--app")
    return common[:at] + common[at + 2 :]
