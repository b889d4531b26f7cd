"""Starts a real `cordata server` and talks to it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from tests.servers.fork_server import Process, popen
from tests.servers.process import free_port, is_alive
from tests.servers.reaper import watched
from tests.waiting import until

ROOT = Path(__file__).parents[3]
#: Only reached when it fails; the machine may be busy.
PATIENCE_S = 60.0
APP = "tests.integration.server.tiny:app"


class Server:
    """One server process; its stderr is collected."""

    def __init__(self, process: subprocess.Popen[str] | Process) -> None:
        self.process = watched(process)
        self.lines: list[str] = []
        self.out: list[str] = []
        self._changed = threading.Condition()
        self._threads = [
            threading.Thread(target=self._collect, args=(stream, lines), daemon=True)
            for stream, lines in (
                (self.process.stderr, self.lines),
                (self.process.stdout, self.out),
            )
        ]
        for thread in self._threads:
            thread.start()

    def _collect(self, stream: Any, lines: list[str]) -> None:
        for line in stream:
            with self._changed:
                lines.append(line.rstrip("\n"))
                self._changed.notify_all()

    @property
    def log(self) -> str:
        return "\n".join(self.lines)

    def until(self, true: Callable[[], Any], what: str) -> Any:
        """Wait for something that a line of output brings about."""
        deadline = time.monotonic() + PATIENCE_S
        with self._changed:
            while not (found := true()):
                left = deadline - time.monotonic()
                over = not any(thread.is_alive() for thread in self._threads)
                assert left > 0 and not over, f"{what} did not happen; log:\n{self.log}"
                self._changed.wait(min(left, 0.2))
            return found

    def logged(self, pattern: str) -> list[str]:
        """The lines so far that match."""
        return [line for line in self.lines if re.search(pattern, line)]

    def until_logged(self, pattern: str, count: int = 1) -> list[str]:
        """The lines that match, once there are so many."""

        def found() -> list[str] | None:
            lines = self.logged(pattern)
            return lines if len(lines) >= count else None

        result: list[str] = self.until(found, f"{count} x {pattern!r}")
        return result

    def ready(self) -> str:
        """The ready line's URLs."""
        self.until(lambda: self.out, "the ready line")
        word, _, urls = self.out[0].partition(" ")
        assert word == "ready"
        return urls

    def get(self, path: str) -> dict[str, Any]:
        """One request on a fresh connection."""
        with urlopen(self.ready().split()[0] + path, timeout=PATIENCE_S) as response:
            result: dict[str, Any] = json.load(response)
        return result

    def pid_of(self, name: str) -> int:
        """Of `worker@0`, as last logged."""
        found = self.until_logged(rf"{name} is ready \(pid")[-1]
        match = re.search(r"pid (\d+)", found)
        assert match is not None
        return int(match[1])

    def order(self, *patterns: str) -> list[int]:
        """Line numbers of the first match of each pattern."""
        return [
            next(n for n, line in enumerate(self.lines) if re.search(pattern, line))
            for pattern in patterns
        ]

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        """The exit code, all output read."""
        code = self.process.wait(PATIENCE_S + 10)
        for thread in self._threads:
            thread.join(PATIENCE_S)
        return code


@contextlib.contextmanager
def server(
    state: Path | None,
    *options: str,
    app: str | None = APP,
    workers: int = 2,
    prefix: Sequence[str] = (),
    environment: dict[str, str] | None = None,
) -> Iterator[Server]:
    """A server on a free port; killed at the end if it still runs."""
    process = subprocess.Popen(
        [*prefix, sys.executable, "-m", "cordata", *_words(state, options, app, workers)],
        cwd=ROOT,
        env=_environment(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with _running(process) as running:
        yield running


@contextlib.contextmanager
def forked_server(
    state: Path | None,
    *options: str,
    app: str | None = APP,
    workers: int = 2,
    environment: dict[str, str] | None = None,
) -> Iterator[Server]:
    """The same without the start of an interpreter, for tests that are not about that."""
    words = _words(state, options, app, workers)
    with _running(popen("cordata", words, environment=_environment(environment))) as running:
        yield running


def _words(
    state: Path | None, options: Sequence[str], app: str | None, workers: int
) -> Sequence[str]:
    return [
        *("server", "--workers", str(workers)),
        *(["--app", app] if app else []),
        *([] if "--listen" in options else ["--listen", "127.0.0.1:0"]),
        *(["--state", str(state)] if state else []),  # else as the configuration says
        *options,
    ]


def _environment(more: dict[str, str] | None) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{ROOT / 'daemon'}:{ROOT}", **(more or {})}


@contextlib.contextmanager
def _running(process: subprocess.Popen[str] | Process) -> Iterator[Server]:
    running = Server(process)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.kill()
        running.wait()
        for stream in (running.process.stdout, running.process.stderr):
            if stream is not None:
                stream.close()


def wait_gone(pids: Sequence[int]) -> None:
    """Until no such process lives."""
    until(lambda: not any(map(is_alive, pids)), f"the end of {pids}")


def refused(url: str) -> bool:
    """Whether nothing listens there any more."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=2).close()
    except ConnectionRefusedError:
        return True
    return False


def free_address() -> str:
    """For a test that has to talk before the server says where it listens."""
    return f"127.0.0.1:{free_port()}"
