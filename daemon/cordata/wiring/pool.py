"""pool: the manager of the children. It imports no application and opens no store."""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping
from dataclasses import fields as fields_of
from pathlib import Path
from typing import Any, TypeVar

from cordata.alert.handler import CAUSES
from cordata.config import Config, build, open_document
from cordata.config.pool import PoolConfig
from cordata.core.pool.limits import DEFAULT, PoolLimits, Rules
from cordata.core.pool.shelf import SessionLimits
from cordata.errors import ConfigError
from cordata.log import handled_by, logger
from cordata.pool.server.hub import ServerLimits
from cordata.pool.server.server import PoolServer
from cordata.runner import Layer, Runner
from cordata.services.poolserver import PoolServerService
from cordata.systemd import Notifier, listen_fds, set_level
from cordata.wiring.event_loop import run_on_uvloop

log = logger("cordata.wiring")
T = TypeVar("T")

#: A collection looks at every waiting call; with 100,000 of them that is a pause that callers see.
_COLLECT_AFTER = 50_000


def run_pool(config: Config, path: Path | None) -> int:
    """Run the manager until it ends; `path` is read again at SIGHUP. Returns its exit code."""
    return run_on_uvloop(lambda: _run(config, path))


def limits_of(config: Config) -> ServerLimits:
    """The manager's slice of the configuration."""
    pool = config.pool
    pools = {name: _limits(name, one) for name, one in {DEFAULT: pool, **config.pools}.items()}
    return ServerLimits(
        pools=pools,
        rules=_slice(Rules, pool),
        sessions=_slice(SessionLimits, pool),
        max_globals_bytes=min(pool.max_globals_bytes, pool.max_frame_bytes - 1),
        max_frame_bytes=pool.max_frame_bytes,
        max_connections=pool.max_connections,
    )


async def _run(config: Config, path: Path | None) -> int:
    with Notifier() as notifier:
        server = PoolServer(
            limits_of(config),
            sockets=_sockets(),
            directory=config.paths.state / "pool",
            stop_timeout_s=config.pool.stop_timeout_s,
        )

        async def reload() -> str:
            try:
                fresh = build(open_document(path), None)
            except ConfigError as error:
                log.error("not reloaded, the old configuration stays: %s", error)
                return "reload refused: configuration invalid"
            set_level(fresh.log.level)
            server.reload(limits_of(fresh))
            log.info("reloaded")
            return ""

        runner = Runner(
            [Layer("intake", [PoolServerService(server)])],
            role="pool",
            notifier=notifier,
            stop_timeout_s=config.pool.stop_timeout_s,
            reload=reload,
            collect_after=_COLLECT_AFTER,
        )
        with handled_by(_Alarms(server)):
            return await runner.run()


class _Alarms(logging.Handler):
    """What other roles mail themselves, a worker mails for this one."""

    def __init__(self, server: PoolServer) -> None:
        super().__init__(logging.ERROR)
        self._server = server

    def emit(self, record: logging.LogRecord) -> None:
        """Hand it on; never blocks."""
        message_id = getattr(record, "MESSAGE_ID", "")
        if message_id in CAUSES:
            self._server.hub.alarm(message_id, record.getMessage())


def _limits(name: str, pool: PoolConfig) -> PoolLimits:
    return _slice(PoolLimits, pool, {"name": name, "workers": frozenset(pool.workers)})


def _slice(kind: type[T], pool: PoolConfig, more: Mapping[str, Any] | None = None) -> T:
    """The fields of `kind` that have a key of their name."""
    names = {field.name for field in fields_of(kind)}  # type: ignore[arg-type]
    known = {f.name: getattr(pool, f.name) for f in fields_of(pool) if f.name in names}
    return kind(**{**known, **(more or {})})


def _sockets() -> list[socket.socket]:
    """The sockets named `pool`. Raises: ConfigError when there are none."""
    inherited = listen_fds()
    sockets = [entry.sock for entry in inherited if entry.name == "pool"]
    if not sockets:
        names = ", ".join(entry.name for entry in inherited) or "none at all"
        raise ConfigError(
            f"no listening socket named pool was passed (passed: {names})",
            hint="start through pool.socket, or use `cordata server`",
        )
    return sockets
