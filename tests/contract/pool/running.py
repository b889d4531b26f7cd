"""A whole pool for tests and measurements: workers and their children, each a real process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.integration.cli.command import cordata, write_config
from tests.integration.server.managed import forked


@contextmanager
def running(directory: Path, *, app: str, workers: int = 2, settings: str = "") -> Iterator[Path]:
    """The directory of a pool whose workers and children are ready; at the end all of it is gone.

    Its configuration is `directory / "cordata.toml"`.
    """
    config = write_config(directory, f'[worker]\nservices = ["pool"]\n{settings}', app=app)
    migrated = cordata("migrate", "--config", str(config))
    assert migrated.returncode == 0, migrated.stderr
    with ExitStack() as stack:
        roles = [
            stack.enter_context(forked(config, "worker", str(number))) for number in range(workers)
        ]
        for role in roles:
            role.until_ready()
            role.until(lambda message: message.get("STATUS", "ready") == "ready")
        yield directory / "run" / "pool"
