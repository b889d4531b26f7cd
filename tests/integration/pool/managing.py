"""A real `cordata pool` process on a socket of its own, as pool.socket would hold it."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.integration.pool.peer import Peer
from tests.servers.reaper import watched

from cordata.core.pool.order import ChildEvent
from cordata.pool import SyncClient
from cordata.pool.fingerprint import start_of

ROOT = Path(__file__).parents[3]
#: Of every program that a test starts: it finds cordata and the tests' own modules.
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT / 'daemon'}:{ROOT}"}
PATIENCE_S = 20.0
#: When this process began; workers and children that it plays say that they began a little later.
START = start_of()
#: Takes the descriptor where systemd would put it, then becomes the manager.
ACTIVATE = (
    "import os, sys;"
    "fd = int(sys.argv[1]);"
    "os.dup2(fd, 3) if fd != 3 else os.set_inheritable(3, True);"
    "os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1', LISTEN_FDNAMES='pool');"
    "os.execv(sys.executable, [sys.executable, *sys.argv[2:]])"
)


def exited(start: int, **fields: Any) -> ChildEvent:
    """The end of a child that is played in this process, as its worker tells it."""
    return ChildEvent("exited", os.getpid(), START + start, run=True, **fields)


class Manager:
    """Its socket stays while processes come and go, as with systemd."""

    def __init__(self, directory: Path, settings: str) -> None:
        self.state = directory / "state"
        self.runtime = directory / "run"
        for path in (self.state, self.runtime):
            path.mkdir(parents=True, exist_ok=True)
        self.path = self.runtime / "pool.sock"
        self.config = directory / "cordata.toml"
        self.configure(settings)
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(str(self.path))
        self.socket.listen(128)
        self.lines: list[str] = []
        self._changed = threading.Condition()

    def configure(self, settings: str) -> None:
        paths = f'[paths]\nstate = "{self.state}"\nruntime = "{self.runtime}"\n'
        self.config.write_text(paths + settings)

    def start(self, before: str = "", **environment: str) -> None:
        """`before` is Python that the process runs before it becomes the manager."""
        argv = [sys.executable, "-c", before + ACTIVATE, str(self.socket.fileno())]
        argv += ["-m", "cordata", "pool", "--config", str(self.config)]
        self.process = watched(
            subprocess.Popen(
                argv,
                cwd=ROOT,
                env={**ENVIRONMENT, **environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                pass_fds=[self.socket.fileno()],
            )
        )
        self._thread = threading.Thread(
            target=self._collect, args=(self.process.stderr,), daemon=True
        )
        self._thread.start()

    def _collect(self, stream: Any) -> None:
        with stream:
            for line in stream:
                with self._changed:
                    self.lines.append(line.rstrip("\n"))
                    self._changed.notify_all()

    @property
    def log(self) -> str:
        return "\n".join(self.lines)

    def until_logged(self, pattern: str) -> str:
        """The first line that matches."""
        deadline = time.monotonic() + PATIENCE_S
        with self._changed:
            while True:
                for line in self.lines:
                    if re.search(pattern, line):
                        return line
                left = deadline - time.monotonic()
                assert left > 0, f"no line {pattern!r} in:\n{self.log}"
                self._changed.wait(left)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """The exit code."""
        self.process.send_signal(number)
        code = self.process.wait(PATIENCE_S)
        self._thread.join(PATIENCE_S)
        return code

    def status(self) -> dict[str, Any]:
        with SyncClient(self.path, timeout=PATIENCE_S, operator=True) as client:
            return client.status()

    def until(self, true: Callable[[dict[str, Any]], Any], what: str) -> Any:
        """Wait for something that the status shows."""
        deadline = time.monotonic() + PATIENCE_S
        while not (found := true(self.status())):
            assert time.monotonic() < deadline, f"{what}; {self.status()}"
            time.sleep(0.02)
        return found

    def dial(self) -> Peer:
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(PATIENCE_S)
        sock.connect(str(self.path))
        return Peer(sock)

    def client(self) -> Peer:
        peer = self.dial()
        peer.hello("client")
        return peer

    def worker(self, name: str = "0", *, cmds: tuple[str, ...] = ("echo",)) -> Peer:
        peer = self.dial()
        peer.hello("worker", name, pid=os.getpid(), start=START, inv="abc", cmds=list(cmds))
        return peer

    def child(
        self, name: str = "0", *, start: int = 1, cmds: tuple[str, ...] = ("echo",), **fields: Any
    ) -> Peer:
        """A warm child; the tests play several in this process, told apart by `start`."""
        peer = self.dial()
        fields.setdefault("warm", True)
        peer.hello("child", name, pid=os.getpid(), start=START + start, cmds=list(cmds), **fields)
        return peer


@contextmanager
def managed(directory: Path, settings: str = "") -> Iterator[Manager]:
    """A running manager; killed at the end if it still runs."""
    manager = Manager(directory, settings)
    manager.start()
    try:
        yield manager
    finally:
        if manager.process.poll() is None:
            manager.process.kill()
            manager.process.wait()
        manager.socket.close()
