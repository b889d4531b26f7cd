"""The same under `cordata server`, which starts again what was killed, as it does by itself."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.integration.cli.command import ROOT
from tests.integration.pool.chaos.house import APP, PATIENCE_S, SETTINGS, Marked, is_calm
from tests.servers.process import children
from tests.servers.reaper import watched

from cordata.pid import start_of

#: Of a start on a busy machine, and of being ready for as long as the supervisor wants to see.
_STEADY_S = 3.5


class Served(Marked):
    """A supervisor, and below it primary and workers."""

    #: A worker that ends in order is not started again.
    kinds: Mapping[str, int] = {
        **{"child": 65, "worker": 18, "worker and child": 12, "recycle": 5},
    }

    def __init__(self, directory: Path, *, workers: int, settings: str) -> None:
        super().__init__(directory, directory / "run" / "pool")
        self._workers = workers
        self._log = directory / "log"
        config = directory / "server.toml"
        config.write_text(
            f'[app]\nimport = "{APP}"\n[worker]\nservices = ["pool"]\n'
            f'[paths]\nstate = "{directory / "state"}"\nruntime = "{directory / "run"}"\n'
            f'credentials = "{directory / "credentials"}"\n[pool]\n{settings}'
        )
        argv = [sys.executable, "-m", "cordata", "server", "--config", str(config), "--restart"]
        argv += ["--workers", str(workers), "--listen", "127.0.0.1:0"]
        with self._log.open("ab") as log:
            self.process = watched(
                subprocess.Popen(
                    argv,
                    cwd=ROOT,
                    env={
                        **os.environ,
                        "PYTHONPATH": f"{ROOT / 'daemon'}:{ROOT}",
                        **self.environment,
                    },
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            )

    def until_calm(self) -> dict[str, Any]:
        """Until all is up and nothing waits, or is in hand; gives the status then."""
        return self.until(
            lambda status: (
                is_calm(status, self._worker_pids()) and len(status["workers"]) == self._workers
            )
        )

    def stop(self) -> None:
        """All of it, in order."""
        self.until_calm()
        self.process.terminate()
        code = self.process.wait(PATIENCE_S)
        assert code in (0, 1), self.log()[-4000:]  # 1: something had crashed

    def log(self) -> str:
        """Of all processes."""
        return self._log.read_text()

    def kill(self, kind: str, rng: random.Random) -> None:
        """One process of that kind, if there is one."""
        workers = self._worker_pids()
        if kind == "recycle":
            worker = str(rng.randrange(self._workers))
            self.kills[kind] += self.recycle(worker)
        elif workers:
            worker_pid = rng.choice(workers)
            if "worker" in kind:
                _wait_steady([worker_pid])
            dead = False
            if "child" in kind:
                dead = self.kill_one(children(worker_pid), rng)
            if "worker" in kind:
                dead = self.kill_one([worker_pid], rng)
            self.kills[kind] += dead

    def _worker_pids(self) -> list[int]:
        return [pid for pid in children(self.process.pid) if _role(pid) == "worker"]

    def close(self) -> None:
        """Nothing of it runs on: the others die with the supervisor."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.left()


def _wait_steady(pids: list[int]) -> None:
    """Until they are up for so long that a successor is started soon: with what dies at once again
    and again the supervisor waits longer than any caller.
    """
    for pid in pids:
        start = start_of(pid)
        age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - start / os.sysconf("SC_CLK_TCK")
        time.sleep(max(0.0, _STEADY_S - age_s) if start else 0.0)


def _role(pid: int) -> str:
    """`cordata ROLE ...`; "" of one that has just been forked, or has ended."""
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        return next((word for word in words if word in ("worker", "primary")), "")
    return ""


@contextmanager
def served(directory: Path, *, workers: int, settings: str = SETTINGS) -> Iterator[Served]:
    """A running server; at the end nothing of it is left."""
    found = Served(directory, workers=workers, settings=settings)
    try:
        found.until_calm()
        yield found
    finally:
        found.close()
