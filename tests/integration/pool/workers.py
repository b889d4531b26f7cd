"""Real workers with real children, which come and go while a test calls them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.integration.cli.command import cordata
from tests.integration.server.managed import Managed, forked
from tests.waiting import until

from cordata.pool import SyncClient

APP = "tests.integration.pool.worker.pooled:app"
QUICK = "restart_first_s = 0.01\nrestart_max_s = 0.1\nkill_grace_s = 0.5\ncancel_grace_s = 0.3\n"


class Workers:
    """One configuration."""

    def __init__(self, directory: Path, settings: str, app: str) -> None:
        self.config = directory / "worker.toml"
        self.path = directory / "run" / "pool"
        (directory / "store").mkdir()
        self.config.write_text(
            f'[app]\nimport = "{app}"\n[worker]\nservices = ["engine", "pool"]\n'
            f'[paths]\nstate = "{directory / "store"}"\nruntime = "{directory / "run"}"\n'
            f"[pool]\n{QUICK}{settings}"
        )
        assert cordata("migrate", "--config", str(self.config)).returncode == 0

    @contextmanager
    def worker(self, name: str = "0", **environment: str) -> Iterator[Managed]:
        """A worker whose child is warm."""
        with forked(self.config, "worker", name, **environment) as worker:
            worker.until(lambda message: message.get("STATUS") == "ready")
            yield worker

    def workers(self) -> list[dict[str, Any]]:
        """What the workers say."""
        with SyncClient(self.path) as client:
            return list(client.status()["workers"])

    def running(self) -> set[tuple[str, str]]:
        """Worker and command of each call that runs."""
        found = {(one["worker"], child["command"]) for one, child in self.children()}
        return {entry for entry in found if entry[1]}

    def children(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Each child with its worker."""
        return [(one, child) for one in self.workers() for child in one["children"]]

    def until_running(self, *commands: str) -> None:
        """Until children run these commands."""
        until(lambda: {command for _, command in self.running()} >= set(commands))


@contextmanager
def workers(directory: Path, settings: str = "", app: str = APP) -> Iterator[Workers]:
    yield Workers(directory, settings, app)
