"""Places to back up and to restore: a configuration, a store, credentials, and their commands."""

from __future__ import annotations

import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from tests.integration.cli.command import cordata, write_config
from tests.integration.server.running import Server, forked_server

APP = "tests.integration.backup.counter:app"
KEY = "5a" * 32
SECRET = "correct horse"


@dataclass(frozen=True, slots=True)
class Place:
    """One host, as far as a backup sees it."""

    config: Path
    #: The store of PostgreSQL; else it is a file.
    url: str

    @property
    def directory(self) -> Path:
        return self.config.parent

    @property
    def database(self) -> Path:
        return self.directory / "state/cordata.db"

    @property
    def key(self) -> Path:
        return self.directory / "credentials/master-key"

    def run(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        return cordata(*map(str, words), "--config", str(self.config))

    def backup(self, target: Path, *options: str) -> subprocess.CompletedProcess[str]:
        return self.run("backup", "--passphrase-file", self.directory / "phrase", *options, target)

    def restore(self, source: Path, *options: str) -> subprocess.CompletedProcess[str]:
        return self.run("restore", "--passphrase-file", self.directory / "phrase", *options, source)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        if self.url:
            with psycopg.connect(self.url) as server:
                return server.execute(sql.encode()).fetchall()
        with closing(sqlite3.connect(self.database)) as file:
            return file.execute(sql).fetchall()

    def write(self, sql: str) -> None:
        if self.url:
            with psycopg.connect(self.url) as server:
                server.execute(sql.encode())
            return
        with closing(sqlite3.connect(self.database, isolation_level=None)) as file:
            file.execute(sql)

    def fill(self, count: int) -> None:
        """So many effects that no event had."""
        self.write(
            f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})"
            " INSERT INTO effect (event_id, number) SELECT 'made', i FROM n"
        )

    def number(self, sql: str) -> int:
        return int(self.rows(sql)[0][0])

    def serve(self, **environment: str) -> Any:
        return forked_server(
            None, "--config", str(self.config), app=None, workers=2, environment=environment
        )


def place(directory: Path, url: str = "", *, key: str = KEY, app: str = APP) -> Place:
    """A host without a store."""
    directory.mkdir()
    config = write_config(directory, f'[store]\nurl = "{url or "sqlite:"}"\n', app=app)
    made = Place(config, url)
    made.key.parent.mkdir()
    made.key.write_text(f"{key}\n")
    (directory / "phrase").write_text(f"{SECRET}\n")
    return made


def filled(directory: Path, url: str = "", *, app: str = APP) -> Place:
    """A host with a migrated, empty store, whose service does not run."""
    made = place(directory, url, app=app)
    assert made.run("migrate").returncode == 0
    return made


class Load:
    """Requests, one after the other, from threads; the ids of what was acknowledged."""

    def __init__(self, running: Server) -> None:
        self.acknowledged: list[str] = []
        self._running = running
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._send) for _ in range(2)]

    def _send(self) -> None:
        while not self._over.is_set():
            self.acknowledged.append(self._running.get("/")["event"])

    @contextmanager
    def sending(self) -> Iterator[None]:
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in self._threads:
                thread.join()
