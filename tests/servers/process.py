"""One server process on loopback, in a directory of its own, that never outlives its pytest."""

from __future__ import annotations

import atexit
import contextlib
import os
import pwd
import random
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.servers.reaper import watched
from tests.waiting import until

#: Below the ports the kernel gives to clients: one that connects again and again to a stopped
#: server's port would one day be given that very port, and talk to itself.
_PORTS = range(20_000, 32_000)
#: Those of `free_port`.
_chosen: list[socket.socket] = []
#: A file system without a disk, and the room it must have.
_MEMORY = Path("/dev/shm")
_MEMORY_BYTES = 2 << 30
_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])

_RENAMED = r"""
import sys
with open("/proc/self/comm", "wb") as file:
    file.write(b"\xff)")
print(flush=True)
sys.stdin.read()
"""


class ServerError(Exception):
    """A program is not installed, or a server did not start or stop; with what it logged."""


def find_program(name: str) -> str:
    """Path of a program. Raises: ServerError that says how to install it."""
    found = shutil.which(name, path=_PATH)
    if not found:
        raise ServerError(f"{name} is not installed: run packaging/build/need test")
    return found


def free_port() -> int:
    """A port of loopback that no other process of tests is given while this one lives.

    It stays bound, without listening, and is marked for reuse only then: who listens with
    SO_REUSEADDR, as servers do, gets it, also after a restart; who chooses a port does not.
    """
    for port in random.sample(_PORTS, 100):
        chosen = socket.socket()
        try:
            chosen.bind(("127.0.0.1", port))
        except OSError:
            chosen.close()
        else:
            chosen.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            _chosen.append(chosen)
            return port
    raise ServerError("no free port")


def in_memory() -> Path | None:
    """Where files cost least; None when there is no such place, or little room in it.

    A PostgreSQL database is 300 files: on a disk's file system a test's own one was measured to
    take 110 to 180 ms of processor time from its creation to its end, here 30.
    """
    if not (_MEMORY.is_mount() and os.access(_MEMORY, os.W_OK)):
        return None
    status = os.statvfs(_MEMORY)
    return _MEMORY if status.f_bavail * status.f_frsize > _MEMORY_BYTES else None


def children(pid: int) -> list[int]:
    """Child processes of a process; none when it is gone."""
    with contextlib.suppress(OSError):
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def process_state(pid: int) -> str:
    """Letter of proc(5), such as T for stopped; empty when it is gone or a mere zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0].strip("ZX")
    except OSError:
        return ""


@contextlib.contextmanager
def unreadably_named() -> Iterator[subprocess.Popen[bytes]]:
    """A process whose name in /proc is not UTF-8; it is killed at the end."""
    argv = [sys.executable, "-c", _RENAMED]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()  # it has its name
            yield watched(process)
        finally:
            process.kill()


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that is dead but not yet waited for does not.

    The first thread of a killed process is a zombie while others still end, and as long as one
    lives its sockets stay open: such a process counts as alive.
    """
    if process_state(pid) != "":
        return True
    with contextlib.suppress(OSError):
        return len(os.listdir(f"/proc/{pid}/task")) > 1
    return False


def signal_all(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to each that is still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def as_user() -> dict[str, Any]:
    """Arguments of `subprocess` for servers that refuse to run as root: an unprivileged user."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    raise ServerError("neither the user postgres nor nobody exists")


class Server(ABC):
    """A server process. Starts with the `with` block (or `start`), is gone with all files after it.

    The port and the files stay the same from `start` to `close`, so a client may wait for a server
    that is stopped, killed or suspended. When pytest is killed -9, both are gone, too.
    """

    #: What it is called in messages.
    name = "server"

    def __init__(self, *, parent: Path | None = None) -> None:
        """`parent`: of its directory; None: wherever temporary files are."""
        self.port = free_port()
        self.directory = Path(tempfile.mkdtemp(prefix=f"cordata-{self.name}-", dir=parent))
        atexit.register(self.close)
        self.log = self.directory / "log"
        if user := as_user():
            os.chown(self.directory, user["user"], user["group"])
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def _command(self) -> Sequence[str]:
        """The command line of the server in the foreground."""

    @abstractmethod
    def is_ready(self) -> bool:
        """Whether it accepts clients."""

    @property
    def pid(self) -> int:
        """The main process. Raises: ServerError when it is not running."""
        if self._process is None:
            raise ServerError(f"{self.name} is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether its main process is there; a suspended one is."""
        return self._process is not None and self._process.poll() is None

    def start(self, *, timeout_s: float = 120.0) -> Self:
        """Start and wait until it accepts clients. Legal when it runs. Raises: ServerError."""
        if self.running:
            return self
        self._gone()
        with self.log.open("ab") as log:
            self._process = watched(
                subprocess.Popen(
                    self._command(),
                    cwd=self.directory,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    **as_user(),
                ),
                then=f"rm -rf {shlex.quote(str(self.directory))}",
            )
        end = time.monotonic() + timeout_s
        while not self.is_ready():
            if not self.running or time.monotonic() > end:
                self.kill()
                raise ServerError(f"{self.name} did not start:\n{self.log.read_text()[-4000:]}")
            time.sleep(0.005)
        return self

    def stop(self, *, timeout_s: float = 120.0) -> None:
        """Stop it as its service manager would, and wait. Legal when it is not running."""
        self._end(signal.SIGTERM, timeout_s)

    def kill(self) -> None:
        """SIGKILL to it and all its processes, as at a loss of power; returns when they are gone.

        Legal when it is not running or suspended.
        """
        if self._process is None:
            return
        below = children(self._process.pid)
        signal_all([self._process.pid, *below], signal.SIGKILL)
        self._process.wait()
        until(lambda: not any(map(is_alive, below)), what=f"the end of {self.name}")
        self._gone()

    def restart(self) -> None:
        """`stop` and `start`."""
        self.stop()
        self.start()

    def suspend(self) -> None:
        """SIGSTOP to it and all its processes: connections stay open and nothing answers."""
        _freeze([self.pid])  # first: it makes no further ones then
        _freeze(children(self.pid))

    def resume(self) -> None:
        """Undo `suspend`."""
        signal_all([*children(self.pid), self.pid], signal.SIGCONT)

    def close(self) -> None:
        """Kill it and remove its files. Legal at any time and twice."""
        atexit.unregister(self.close)
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _end(self, number: signal.Signals, timeout_s: float) -> None:
        if self._process is None:
            return
        self.resume()
        signal_all([self._process.pid], number)
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            text = self.log.read_text()[-4000:]
            raise ServerError(f"{self.name} did not stop in {timeout_s} s:\n{text}") from None
        self._gone()

    def _gone(self) -> None:
        if self._process:
            self._process.wait()
        self._process = None

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _freeze(pids: Sequence[int]) -> None:
    signal_all(pids, signal.SIGSTOP)
    until(lambda: all(process_state(pid) in ("T", "") for pid in pids), what="SIGSTOP")
