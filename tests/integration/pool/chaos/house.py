"""A pool whose processes are killed at random and started again, as a service manager would.

Only processes are killed that this house started, or whose parent it started: each is held by a
pidfd and has the house's mark in its environment, so no other one is ever meant.
"""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.integration.cli.command import ROOT, cordata
from tests.integration.pool.chaos.commands import EVIDENCE
from tests.servers.process import children, is_alive
from tests.servers.reaper import watched

from cordata.errors import PoolError
from cordata.pool import SyncClient

MARK = "CHAOS_MARK"
APP = "tests.integration.pool.chaos.chaotic:app"
#: Until everything is up, or gone; the machine may be busy.
PATIENCE_S = 60.0
#: Between the end of a process and its next life.
_PAUSE_S = 0.1
SETTINGS = """
retries = 50
poison_limit = 1000000
restart_first_s = 0.01
restart_max_s = 0.2
kill_grace_s = 0.2
cancel_grace_s = 0.2
max_calls = 200
max_waiting = 100000
"""


class Worker:
    """worker@N; its log is in a file."""

    def __init__(self, name: str, config: Path) -> None:
        self.name = name
        self.log = config.parent / f"worker-{name}.log"
        self._config = config

    def start(self, **environment: str) -> None:
        argv = [sys.executable, "-m", "cordata", "worker", self.name]
        with self.log.open("ab") as log:
            self.process = watched(
                subprocess.Popen(
                    [*argv, "--config", str(self._config)],
                    cwd=ROOT,
                    env={
                        **os.environ,
                        "PYTHONPATH": f"{ROOT / 'daemon'}:{ROOT}",
                        **environment,
                    },
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            )


class Marked:
    """Processes with a mark in their environment, which is how they are told from all others."""

    def __init__(self, directory: Path, path: Path) -> None:
        #: Of the pool's files.
        self.path = path
        self.mark = uuid.uuid4().hex
        self.evidence = directory / "evidence"
        self.evidence.touch()
        self.environment = {MARK: self.mark, EVIDENCE: str(self.evidence)}
        self.kills: Counter[str] = Counter()

    def left(self) -> list[int]:
        """Processes of this house that live; the last ones may need a moment to die."""
        end = time.monotonic() + PATIENCE_S
        while found := [pid for pid in _pids() if self._is_ours(pid) and is_alive(pid)]:
            if time.monotonic() > end:
                break
            time.sleep(0.05)
        return found

    def kill_one(self, pids: Sequence[int], rng: random.Random) -> bool:
        """Kill -9 one of these, if it is there and ours, and see it end."""
        if not pids:
            return False
        pid = rng.choice(pids)
        try:
            file = os.pidfd_open(pid)
        except ProcessLookupError:
            return False
        try:
            if not self._is_ours(pid):
                return False
            signal.pidfd_send_signal(file, signal.SIGKILL)
            ended = select.poll()  # select() takes no descriptor above 1023
            ended.register(file, select.POLLIN)
            ended.poll(PATIENCE_S * 1000)
        except ProcessLookupError:
            return False
        finally:
            os.close(file)
        return True

    def until(self, true: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """What the workers tell, once it is true of it; on a busy machine no answer may come."""
        end = time.monotonic() + PATIENCE_S
        while True:
            status: dict[str, Any] = {}
            with suppress(PoolError), SyncClient(self.path, timeout=5.0) as client:
                status = client.status()
            if status and true(status):
                return status
            ours = [pid for pid in _pids() if self._is_ours(pid) and is_alive(pid)]
            assert time.monotonic() < end, f"{ours}, {status}\n{self.log()[-4000:]}"
            time.sleep(0.05)

    def log(self) -> str:
        """Of all processes."""
        raise NotImplementedError

    def recycle(self, worker: str) -> bool:
        """Have a worker's child replaced, if it is there to be asked."""
        try:
            with SyncClient(self.path, timeout=0.5) as client:
                client.recycle(worker)
        except PoolError:
            return False
        return True

    def _is_ours(self, pid: int) -> bool:
        with suppress(OSError):
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            return f"{MARK}={self.mark}".encode() in variables
        return False


class House(Marked):
    """Some workers, each started again when it ends."""

    kinds: Mapping[str, int] = {
        **{"child": 60, "worker": 16, "worker and child": 10},
        **{"worker in order": 8, "recycle": 6},
    }

    def __init__(self, directory: Path, *, workers: int, app: str, settings: str) -> None:
        runtime = directory / "run"
        super().__init__(directory, runtime / "pool")
        config = directory / "worker.toml"
        (directory / "store").mkdir()
        config.write_text(
            f'[app]\nimport = "{app}"\n[worker]\nservices = ["pool"]\n'
            f'[paths]\nstate = "{directory / "store"}"\nruntime = "{runtime}"\n'
            f"[pool]\n{settings}"
        )
        migrated = cordata("migrate", "--config", str(config))
        assert migrated.returncode == 0, migrated.stderr
        self.workers = [Worker(str(n), config) for n in range(workers)]
        #: They were told to, and what asks for calm waits for them.
        self._ending: list[subprocess.Popen[str] | subprocess.Popen[bytes]] = []
        self._over = threading.Event()
        self._keeper = threading.Thread(target=self._keep, daemon=True)

    def start(self) -> None:
        """Until each worker has a child that takes calls."""
        for worker in self.workers:
            worker.start(**self.environment)
        self._keeper.start()
        self.until_calm()

    def until_calm(self) -> dict[str, Any]:
        """Until all is up and nothing waits, or is in hand; gives the status then."""
        for process in self._ending:
            process.wait(PATIENCE_S)
        return self.until(
            lambda status: is_calm(status, [worker.process.pid for worker in self.workers])
        )

    def stop(self) -> None:
        """The workers, in order."""
        self._leave_alone()
        for worker in self.workers:
            worker.process.terminate()
        for worker in self.workers:
            code = worker.process.wait(PATIENCE_S)
            assert code == 0, f"worker {worker.name} ended with {code}: {self.log()[-8000:]}"

    def close(self) -> None:
        """Nothing of it runs on."""
        self._leave_alone()
        for worker in self.workers:
            if hasattr(worker, "process"):
                if worker.process.poll() is None:
                    worker.process.kill()
                worker.process.wait()

    def log(self) -> str:
        """Of all processes."""
        return "\n".join(worker.log.read_text() for worker in self.workers)

    def kill(self, kind: str, rng: random.Random) -> None:
        """One process of that kind, if there is one."""
        worker = rng.choice(self.workers)
        if kind == "recycle":
            self.kills[kind] += self.recycle(worker.name)
            return
        if "child" in kind:
            dead = self.kill_one(children(worker.process.pid), rng)
            if kind == "child":
                self.kills[kind] += dead
                return
        number = signal.SIGTERM if kind.endswith("in order") else signal.SIGKILL
        process = worker.process
        process.send_signal(number)  # Popen sends none once it has waited for the process
        self.kills[kind] += 1
        if number == signal.SIGKILL:
            process.wait(PATIENCE_S)
        else:
            self._ending.append(process)

    def _keep(self) -> None:
        """Start again what has ended."""
        ended: dict[object, float] = {}
        while not self._over.wait(0.02):
            now = time.monotonic()
            for worker in self.workers:
                if worker.process.poll() is None:
                    ended.pop(worker, None)
                elif now >= ended.setdefault(worker, now) + _PAUSE_S:
                    worker.start(**self.environment)

    def _leave_alone(self) -> None:
        self._over.set()
        if self._keeper.is_alive():
            self._keeper.join()


def is_calm(status: dict[str, Any], workers: Sequence[int]) -> bool:
    """Each worker, by pid, has its children, which are free; and no other child is there."""
    found = [child for one in status["workers"] for child in one["children"]]
    living = {child for pid in workers for child in children(pid) if is_alive(child)}
    return (
        {child["pid"] for child in found} == living
        and {one["pid"] for one in status["workers"]} == set(workers)
        and len({len(one["children"]) for one in status["workers"]} - {0}) == 1
        and not any(child["spare"] for child in found)
        and all((child["state"], child["waiting"]) == ("ready", 0) for child in found)
    )


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


@contextmanager
def house(
    directory: Path, *, workers: int, app: str = APP, settings: str = SETTINGS
) -> Iterator[House]:
    """A running pool; at the end nothing of it is left."""
    found = House(directory, workers=workers, app=app, settings=settings)
    try:
        found.start()
        yield found
    finally:
        found.close()
