"""PostgreSQL on loopback and on a unix socket: up in a second, a database in milliseconds."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tests.servers.process import Server, ServerError, as_user, in_memory
from tests.servers.reaper import swept
from tests.waiting import until

if TYPE_CHECKING:
    import psycopg

#: Name of the superuser.
USER = "cordata"
_PROGRAMS = Path("/usr/lib/postgresql")
_SETTINGS = {
    "max_connections": "200",
    "deadlock_timeout": "100ms",
    "shared_buffers": "64MB",
    "max_wal_size": "256MB",
    "log_min_messages": "warning",
    "log_min_error_statement": "panic",
}
#: A commit is still with the kernel before it returns: only the machine's own crash could lose it.
_FAST = {"fsync": "off", "full_page_writes": "off"}
_NEW = ("--no-sync", "--encoding=UTF8", "--locale=C", f"--username={USER}")
_STOP = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}


def find_programs() -> Path:
    """Directory with the programs of the newest PostgreSQL. Raises: ServerError."""
    found = {path.parent: path.parts[-3] for path in _PROGRAMS.glob("*/bin/postgres")}
    if not found:
        raise ServerError("PostgreSQL is not installed: run packaging/build/need test")
    return max(found, key=lambda path: int(found[path]))


class PostgresServer(Server):
    """A cluster of its own, empty but for `postgres`. As root it runs as an unprivileged user."""

    name = "postgres"

    def __init__(
        self,
        *,
        durable: bool = False,
        password: str | None = None,
        standby_of: PostgresServer | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """`durable`: on a disk, with fsync as in production. Either way kill -9 loses nothing.

        `password`: SCRAM for it instead of trusting everybody. `standby_of`: a running server that
        it copies and follows, read-only, until `promote`. `settings`: of postgresql.conf.
        """
        super().__init__(parent=None if durable else in_memory())
        self.standby_of = standby_of
        self.password: str | None = standby_of.password if standby_of else password
        self.data = self.directory / "data"
        self.settings = {**_SETTINGS, **({} if durable else _FAST), **(settings or {})}
        self._numbers = count(1)
        self._maker: psycopg.Connection[Any] | None = None

    @property
    def version(self) -> int:
        """Major version."""
        return int((self.data / "PG_VERSION").read_text())

    def url(self, database: str = "postgres") -> str:
        """URL over TCP."""
        secret = f":{self.password}" if self.password else ""
        return f"postgresql://{USER}{secret}@127.0.0.1:{self.port}/{database}"

    def socket_url(self, database: str = "postgres") -> str:
        """URL over the unix socket."""
        secret = f":{self.password}" if self.password else ""
        return f"postgresql://{USER}{secret}@/{database}?host={self.directory}&port={self.port}"

    def execute(
        self, query: str, values: Sequence[object] = (), *, database: str = "postgres"
    ) -> list[tuple[Any, ...]]:
        """Run one statement in autocommit on a connection of its own; returns its rows, if any."""
        import psycopg

        with psycopg.connect(self.socket_url(database), autocommit=True) as connection:
            cursor = connection.execute(query.encode(), values or None)
            return cursor.fetchall() if cursor.description else []

    def create_database(self, name: str | None = None, *, template: str = "template0") -> str:
        """A new database, empty or a copy of another one; returns its name."""
        name = name or f"test_{next(self._numbers)}"
        self._make(f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY file_copy')
        return name

    def drop_database(self, name: str) -> None:
        """Drop it, connected clients or not."""
        self._make(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def _make(self, statement: str) -> None:
        """Run it on a connection that stays: each new one is a process of the server."""
        import psycopg

        while True:
            if self._maker is None or self._maker.closed:
                self._maker = psycopg.connect(self.socket_url(), autocommit=True)
            try:
                self._maker.execute(statement.encode())
                return
            except psycopg.OperationalError:
                if not self._maker.closed:  # else a test has ended it, and maybe the server
                    raise

    def _unmake(self) -> None:
        if self._maker:
            self._maker.close()
            self._maker = None

    def _gone(self) -> None:
        super()._gone()
        self._unmake()

    @contextmanager
    def database(self, *, template: str = "template0") -> Iterator[str]:
        """URL of a fresh database that is dropped after the block, if the server still runs."""
        name = self.create_database(template=template)
        try:
            yield self.url(name)
        finally:
            if self.running:
                self.drop_database(name)

    def terminate_backends(self, *, database: str | None = None) -> int:
        """End all client connections (of one database) as an administrator would; their count."""
        query = (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            " AND backend_type = 'client backend' AND (%s::text IS NULL OR datname = %s)"
        )
        self._unmake()
        return len(self.execute(query, [database, database]))

    def promote(self) -> None:
        """Make the standby a primary; returns when it accepts writes."""
        self.execute("SELECT pg_promote(wait => true)")

    def wait_for_standby(self, standby: PostgresServer, *, timeout_s: float = 60.0) -> None:
        """Wait until a standby shows all that is committed here by now."""
        [(target,)] = self.execute("SELECT pg_current_wal_insert_lsn()::text")
        query = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"
        until(
            lambda: standby.execute(query, [target])[0][0],
            timeout_s=timeout_s,
            what="the standby's catching up",
        )

    def stop(
        self, *, mode: Literal["smart", "fast", "immediate"] = "fast", timeout_s: float = 120.0
    ) -> None:
        """Stop it; modes as of pg_ctl(1): `immediate` skips the checkpoint, as a crash does."""
        self._unmake()  # `smart` waits for clients
        self._end(_STOP[mode], timeout_s)

    def is_ready(self) -> bool:
        """Whether it says so in its pid file (recovery is over)."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) > 7 and int(lines[0]) == self.pid and lines[7].strip() == "ready"

    def _command(self) -> Sequence[str]:
        programs = find_programs()
        if not self.data.exists():
            self._make_cluster(programs)
        options = {
            **self.settings,
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self.directory),
        }
        words = [f"--{name}={value}" for name, value in options.items()]
        return [str(programs / "postgres"), "-D", str(self.data), *words]

    def _make_cluster(self, programs: Path) -> None:
        if self.standby_of:
            source = f"--dbname={self.standby_of.socket_url()}"
            words = ["--write-recovery-conf", "--checkpoint=fast", "--no-sync", source]
            _prepare(self.data, programs / "pg_basebackup", *words)
        elif self.password:
            secret = self.directory / "password"
            secret.write_text(self.password)
            secret.chmod(0o644)
            words = ["--auth=scram-sha-256", f"--pwfile={secret}"]
            _prepare(self.data, programs / "initdb", *_NEW, *words)
        else:
            subprocess.run(["cp", "-a", _template(programs), self.data], check=True)


@cache
def _template(programs: Path) -> Path:
    """A cluster to copy, which takes a tenth of the time that it takes to make one."""
    folder = swept(Path(tempfile.mkdtemp(prefix="cordata-template-", dir=in_memory())))
    if user := as_user():
        shutil.chown(folder, user["user"], user["group"])
    _prepare(folder / "data", programs / "initdb", *_NEW, "--auth=trust")
    return folder / "data"


def _prepare(data: Path, program: Path, *words: str) -> None:
    done = subprocess.run(
        [program, "--pgdata", data, *words],
        cwd=data.parent,
        capture_output=True,
        text=True,
        **as_user(),
    )
    if done.returncode:
        raise ServerError(f"{program.name} failed:\n{done.stdout}{done.stderr}")
