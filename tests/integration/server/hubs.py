"""The hub with all its processes, as `make run` starts it: commands, requests, what is stored."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.integration.server.running import PATIENCE_S, ROOT, Server, forked_server, free_address
from tests.servers import fork_server
from tests.servers.process import children, is_alive
from tests.waiting import until

#: What is still to be handled.
OPEN = "SELECT count(*) FROM message"
FORM_SECRETS = {kind: f"demo-{kind}-0123456789012" for kind in ("wix", "google", "form")}

_CONFIG = """[app]
import = "alpinehub.app:app"
{more}
[alpinehub]
demo = true
push_private = true
{limits}
[paths]
state = "{state}"
runtime = "{state}/run"
credentials = "{state}/credentials"
"""

#: All guests of a test come from one address.
NO_LIMITS = "form_per_minute = 0\nform_per_hour = 0"


class Answer(NamedTuple):
    """A response."""

    status: int
    body: bytes
    headers: http.client.HTTPMessage


class Hub:
    """A hub on SQLite, or where `more` says, with a demo hotel. Leave it by `closed`."""

    def __init__(
        self,
        state: Path,
        *,
        more: str = "",
        limits: str = NO_LIMITS,
        workers: int = 2,
        query: Callable[[str], list[tuple[Any, ...]]] | None = None,
    ) -> None:
        self.state = state
        self._query = query
        self.address = free_address()
        self.workers = workers
        self.config = state / "cordata.toml"
        credentials = state / "credentials"
        credentials.mkdir(mode=0o700, parents=True)
        (credentials / "master-key").write_text("5a" * 32)
        (credentials / "master-key").chmod(0o600)
        self.config.write_text(_CONFIG.format(state=state, more=more, limits=limits))
        #: All that were started; the last one runs.
        self.servers: list[Server] = []
        self._stack = contextlib.ExitStack()

    @property
    def running(self) -> Server:
        """The server that runs."""
        return self.servers[-1]

    @property
    def log(self) -> str:
        """What all servers said."""
        return "\n".join(one.log for one in self.servers)

    def start(self) -> None:
        """On the same port and data as before."""
        options = ("--restart", "--config", str(self.config), "--listen", self.address)
        made = forked_server(None, *options, app=None, workers=self.workers)
        self.servers.append(self._stack.enter_context(made))
        self.running.ready()

    def stop(self) -> int:
        """In order; the exit code."""
        self.running.signal(signal.SIGTERM)
        return self.running.wait()

    def kill(self, role: str) -> None:
        """kill -9 of the process that last had a role: `worker@0`, `primary`, `child`, `server`; of
        one that is gone already, nothing.
        """
        if role == "server":
            crew = self.pids()
            self.running.process.kill()
            self.running.wait()
            until(lambda: not any(map(is_alive, crew)), "the end of the crew")
            return
        pids = self._pool_children()[:1] if role == "child" else [self.running.pid_of(role)]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _pool_children(self) -> list[int]:
        return [pid for worker in children(self.running.process.pid) for pid in children(worker)]

    def pids(self) -> list[int]:
        """Of all its processes."""
        direct = children(self.running.process.pid)
        return [*direct, *(pid for one in direct for pid in children(one))]

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Read from the store, past the hub."""
        if self._query is not None:
            return self._query(sql)
        with contextlib.closing(sqlite3.connect(self.state / "cordata.db", timeout=10)) as opened:
            return opened.execute(sql).fetchall()

    def number(self, sql: str) -> int:
        """The one number of a query."""
        return int(self.rows(sql)[0][0])

    def command(self, *words: str, given: str = "") -> str:
        """Run `alpinehub ...`; what it said."""
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "daemon")}
        argv = [*words, "--config", str(self.config)]
        done = fork_server.run("alpinehub", argv, given=given, environment=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def post(self, path: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """One request on a connection of its own. Raises: OSError, HTTPException."""
        connection = http.client.HTTPConnection(self.address, timeout=PATIENCE_S)
        with contextlib.closing(connection):
            connection.request("POST", path, body, dict(headers))
            response = connection.getresponse()
            return Answer(response.status, response.read(), response.headers)


@contextlib.contextmanager
def hub(state: Path, **settings: Any) -> Iterator[Hub]:
    """A hub that runs, with the settings of `Hub`; killed at the end if nobody stopped it."""
    made = Hub(state, **settings)
    with made._stack:
        made.start()
        yield made
