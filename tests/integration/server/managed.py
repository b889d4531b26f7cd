"""One role under a manager that is this test: it reads $NOTIFY_SOCKET itself."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.integration.server.running import PATIENCE_S, ROOT
from tests.servers import fork_server
from tests.servers.reaper import watched

from cordata.supervisor.notify import NotifySocket


class Managed:
    """A role process and what it notified."""

    def __init__(
        self,
        argv: Sequence[str],
        environment: dict[str, str],
        listening: Sequence[socket.socket] = (),
        *,
        forked: bool = False,
    ) -> None:
        if listening:
            names = ":".join("http" for _ in listening)
            environment = {
                **environment,
                "LISTEN_FDS": str(len(listening)),
                "LISTEN_FDNAMES": names,
            }
        self._notify = NotifySocket()
        #: Every datagram, in order.
        self.messages: list[dict[str, str]] = []
        environment = {
            **os.environ,
            "PYTHONPATH": f"{ROOT / 'daemon'}:{ROOT}",
            "NOTIFY_SOCKET": self._notify.address,
            **environment,
        }
        self.process = watched(
            fork_server.popen("cordata", argv, stdout=None, environment=environment)
            if forked
            else subprocess.Popen(
                [*_handing(listening), sys.executable, "-m", "cordata", *argv],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                pass_fds=[one.fileno() for one in listening],
            )
        )

    def until(self, true: Callable[[dict[str, str]], object], *, after: int = 0) -> dict[str, str]:
        """The first datagram, old or new but for the first `after`, of which it is true."""
        deadline = time.monotonic() + PATIENCE_S
        seen = after
        while True:
            over = self.process.poll() is not None  # first: what it said at its end has come then
            self.messages.extend(message for _, message in self._notify.receive())
            for message in self.messages[seen:]:
                if true(message):
                    return message
            seen = len(self.messages)
            left = deadline - time.monotonic()
            assert left > 0, f"not notified; {self.messages}"
            assert not over, f"ended with {self.process.returncode}; {self.messages}"
            select.select([self._notify], [], [], min(left, 0.2))

    def until_status(self, text: str) -> dict[str, str]:
        return self.until(lambda message: text in message.get("STATUS", ""))

    def until_ready(self, *, after: int = 0) -> dict[str, str]:
        return self.until(lambda message: message.get("READY") == "1", after=after)

    def is_ready(self) -> bool:
        self.messages.extend(message for _, message in self._notify.receive())
        return any(message.get("READY") == "1" for message in self.messages)

    def stop(self) -> tuple[int, str]:
        """TERM; exit code and log."""
        self.process.terminate()
        return self.ended()

    def ended(self) -> tuple[int, str]:
        """Exit code and log."""
        log = self.process.communicate(timeout=PATIENCE_S)[1]
        self.messages.extend(message for _, message in self._notify.receive())
        return self.process.wait(PATIENCE_S), log

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
        self._notify.close()


def _handing(listening: Sequence[socket.socket]) -> list[str]:
    """What goes before a command that is to find these sockets as systemd passes them."""
    if not listening:
        return []
    moves = " ".join(f"{fd}<&{one.fileno()}" for fd, one in enumerate(listening, start=3))
    return ["bash", "-c", f'exec {moves}; LISTEN_PID=$$ exec "$@"', "bash"]


@contextlib.contextmanager
def managed(config: Path, *argv: str, **environment: str) -> Iterator[Managed]:
    """A role with a configuration file."""
    with contextlib.closing(Managed([*argv, "--config", str(config)], environment)) as role:
        yield role


@contextlib.contextmanager
def forked(config: Path, *argv: str, **environment: str) -> Iterator[Managed]:
    """The same without the start of an interpreter, for tests that are not about that."""
    words = [*argv, "--config", str(config)]
    with contextlib.closing(Managed(words, environment, forked=True)) as role:
        yield role


@contextlib.contextmanager
def managed_on(
    listening: socket.socket | Sequence[socket.socket],
    config: Path,
    *argv: str,
    **environment: str,
) -> Iterator[Managed]:
    """The same with the socket of http.socket, or several."""
    argv = (*argv, "--config", str(config))
    sockets = [listening] if isinstance(listening, socket.socket) else listening
    with contextlib.closing(Managed(argv, environment, sockets)) as role:
        yield role
