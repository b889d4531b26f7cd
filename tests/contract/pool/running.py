"""A whole pool for tests and measurements: its manager and its workers, each a real process."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.integration.cli.command import cordata, write_config
from tests.integration.pool.managing import ACTIVATE, ENVIRONMENT, ROOT
from tests.integration.server.managed import managed
from tests.servers.reaper import watched


@contextmanager
def running(directory: Path, *, app: str, workers: int = 2, settings: str = "") -> Iterator[Path]:
    """The socket of a pool whose workers and children are ready; at the end all of it is gone."""
    config = write_config(directory, f'[worker]\nservices = ["pool"]\n{settings}', app=app)
    migrated = cordata("migrate", "--config", str(config))
    assert migrated.returncode == 0, migrated.stderr
    path = directory / "run" / "pool.sock"
    with ExitStack() as stack, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(128)
        stack.enter_context(_manager(listener, config))
        roles = [
            stack.enter_context(managed(config, "worker", str(number))) for number in range(workers)
        ]
        for role in roles:
            role.until_ready()
            role.until(lambda message: message.get("STATUS", "ready") == "ready")
        yield path


@contextmanager
def _manager(listener: socket.socket, config: Path) -> Iterator[None]:
    argv = [sys.executable, "-c", ACTIVATE, str(listener.fileno())]
    argv += ["-m", "cordata", "pool", "--config", str(config)]
    process = watched(
        subprocess.Popen(
            argv,
            cwd=ROOT,
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            pass_fds=[listener.fileno()],
        )
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait(20.0)
