"""A host that runs PostgreSQL and Redis for the others, from Debian's packages and units."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.host.machine import Host, HostError, wait_for
from tests.host.network import Network
from tests.servers.redis import RedisCommands

if TYPE_CHECKING:
    import psycopg

#: User of both, and the secret that both ask for.
USER = "cordata"
SECRET = "roped-up"
#: A unit that the test has killed stays dead until the test starts it.
_REDIS_UNIT = "[Service]\nRestart=no\n"
#: Debian's wrapper takes two seconds to notice that the server is up.
_POSTGRES_UNIT = """\
[Service]
Type=notify
User=postgres
PIDFile=
ExecStart=
ExecStart=/usr/lib/postgresql/{0}/bin/postgres -D /var/lib/postgresql/{0}/main \\
    -c config_file=/etc/postgresql/{0}/main/postgresql.conf
ExecStop=
KillSignal=SIGINT
KillMode=mixed
"""


class Unit:
    """A service of a host that a test stops, kills, suspends and starts."""

    def __init__(self, host: Host, name: str) -> None:
        self.host = host
        self.name = name

    @property
    def running(self) -> bool:
        """Whether systemd holds it for active; it does when the service is suspended."""
        return self.host.systemctl("is-active", self.name, check=False) == "active"

    def start(self) -> None:
        """Returns when it accepts clients."""
        self.host.systemctl("start", self.name)

    def stop(self) -> None:
        """In order; returns when it is down."""
        self.host.systemctl("stop", self.name)

    def restart(self) -> None:
        """`stop` and `start`."""
        self.host.systemctl("restart", self.name)

    def kill(self) -> None:
        """SIGKILL to all its processes; returns when they are gone."""
        self.host.systemctl("kill", "--signal=KILL", "--kill-whom=all", self.name)
        self.host.systemctl("stop", self.name)
        self.host.systemctl("reset-failed", self.name, check=False)

    def suspend(self) -> None:
        """SIGSTOP to all its processes: connections stay open and nothing answers."""
        self.host.systemctl("kill", "--signal=STOP", "--kill-whom=all", self.name)

    def resume(self) -> None:
        """Undo `suspend`."""
        self.host.systemctl("kill", "--signal=CONT", "--kill-whom=all", self.name)

    def _write(self, path: str, text: str, *, append: bool = False) -> None:
        redirect = ">>" if append else ">"
        command = f'mkdir -p "$(dirname {path})"; cat {redirect}{path}'
        self.host.run("sh", "-euc", command, stdin=text)

    def _change_unit(self, text: str) -> None:
        self._write(f"/etc/systemd/system/{self.name}.d/test.conf", text)
        self.host.systemctl("daemon-reload")


class PostgresUnit(Unit):
    """PostgreSQL on port 5432 with Debian's settings, SCRAM for every client."""

    def __init__(self, host: Host) -> None:
        found = sorted((host.tree / "usr/lib/postgresql").glob("*/bin/postgres"))
        if not found:
            raise HostError("PostgreSQL is missing in packaging/build/packages-tree")
        self.version = found[-1].parts[-3]
        super().__init__(host, f"postgresql@{self.version}-main.service")

    def url(self, database: str = "cordata") -> str:
        """URL for the other hosts, and for this one."""
        return f"postgresql://{USER}:{SECRET}@{self.host.address}:5432/{database}"

    def execute(
        self, query: str, values: Sequence[object] = (), *, database: str = "cordata"
    ) -> list[tuple[Any, ...]]:
        """Run one statement in autocommit from pytest, whatever is cut; returns its rows."""
        with self.connect(database) as connection:
            cursor = connection.execute(query.encode(), values or None)
            return cursor.fetchall() if cursor.description else []

    def connect(self, database: str = "cordata") -> psycopg.Connection[tuple[Any, ...]]:
        """A connection of pytest's own in autocommit, whatever is cut."""
        import psycopg

        return psycopg.connect(
            host=str(self.host.path("/run/postgresql")),
            user=USER,
            password=SECRET,
            dbname=database,
            autocommit=True,
        )

    def empty(self, database: str = "cordata") -> None:
        """The database anew, without anything in it; whoever is connected is cut off."""
        self.execute(f'DROP DATABASE IF EXISTS "{database}" WITH (FORCE)', database="postgres")
        self.execute(f'CREATE DATABASE "{database}" TEMPLATE template0', database="postgres")

    def set_up(self) -> None:
        """Make the cluster when there is none yet, and start it."""
        directory = f"/etc/postgresql/{self.version}/main"
        new = self.host.run("test", "-e", directory, check=False).returncode != 0
        if new:
            self.host.run(
                "pg_createcluster", "--port=5432", self.version, "main", "--", "--no-sync"
            )
            settings = """\
                listen_addresses = '*'
                max_connections = 200
                deadlock_timeout = 100ms
                track_commit_timestamp = on
                """
            self._write(f"{directory}/conf.d/test.conf", textwrap.dedent(settings))
            self._write(
                f"{directory}/pg_hba.conf",
                "local all postgres peer\nlocal all all scram-sha-256\n"
                # As the documentation says: with `host`, a client whose TLS fails tries without.
                "hostssl all all 0.0.0.0/0 scram-sha-256\n",
            )
        self._change_unit(_POSTGRES_UNIT.format(self.version))
        self.start()
        if new:
            role = f"CREATE ROLE {USER} LOGIN SUPERUSER PASSWORD '{SECRET}'"
            as_owner = ["runuser", "-u", "postgres", "--", "psql", "-qc"]
            self.host.run(*as_owner, role)
            self.host.run(*as_owner, f"CREATE DATABASE {USER} TEMPLATE template0 OWNER {USER}")


class RedisUnit(Unit, RedisCommands):
    """Redis or Valkey on port 6379 with Debian's settings, a password, and an append-only file."""

    def __init__(self, host: Host, program: str) -> None:
        self.kind = program.removesuffix("-server")
        super().__init__(host, f"{program}.service")

    @property
    def url(self) -> str:
        """URL of database 0 for the other hosts, and for this one."""
        return f"redis://:{SECRET}@{self.host.address}:6379/0"

    @contextmanager
    def client(self) -> Iterator[Any]:
        """A synchronous `redis.Redis` of pytest's own, whatever is cut."""
        import redis

        path = str(self.host.path(f"/run/{self.kind}/test.sock"))
        with redis.Redis(
            unix_socket_path=path, password=SECRET, decode_responses=True, socket_timeout=10
        ) as client:
            yield client

    def lose_data(self) -> None:
        """Kill it and start it without data, as after the loss of its disk: a new run id, too."""
        self.kill()
        self._replace_data("/nowhere")
        self.start()

    def snapshot(self) -> str:
        """A copy of the data as it is now, for `roll_back`: a directory of the host."""
        wait_for(self.all_written, what="the append-only file's last write")
        self.suspend()
        try:
            return self.host.sh(f"d=$(mktemp -d); cp -a /var/lib/{self.kind} $d; echo $d")
        finally:
            self.resume()

    def roll_back(self, snapshot: str) -> None:
        """Kill it and start it with the data of a snapshot, as after a restored backup."""
        self.kill()
        self._replace_data(f"{snapshot}/{self.kind}")
        self.start()

    def _replace_data(self, source: str) -> None:
        here = f"/var/lib/{self.kind}"
        self.host.sh(f"rm -rf {here}/*; [ ! -d {source} ] || cp -a {source}/. {here}/")

    def set_up(self) -> None:
        """Write its configuration and start it."""
        settings = f"""
            bind 0.0.0.0
            protected-mode no
            requirepass {SECRET}
            appendonly yes
            unixsocket /run/{self.kind}/test.sock
            """
        config = f"/etc/{self.kind}/{self.kind}.conf"
        self._write(config, textwrap.dedent(settings), append=True)
        self._change_unit(_REDIS_UNIT)
        self.start()


class ServerHost(Host):
    """A host whose `postgres` and `redis` all hosts of the network reach, by password.

    Started, both servers run. Their data is still there after `lose_power` and `start`.
    """

    def __init__(
        self,
        tree: Path,
        *,
        network: Network | None = None,
        address: str | None = None,
        redis: str = "redis-server",
    ) -> None:
        """`redis`: redis-server or valkey-server. Without a network: for this host alone."""
        self.postgres: PostgresUnit
        self.redis: RedisUnit
        kind = redis.removesuffix("-server")
        keep = ["/etc/postgresql", "/var/lib/postgresql", f"/var/lib/{kind}"]
        super().__init__(tree, network=network, address=address, keep=keep)
        self.postgres = PostgresUnit(self)
        self.redis = RedisUnit(self, redis)

    def start(self, *, timeout_s: float = 60.0) -> ServerHost:
        """Boot, and start both servers."""
        super().start(timeout_s=timeout_s)
        try:
            self.postgres.set_up()
            self.redis.set_up()
        except BaseException:
            self.stop()
            raise
        return self

    def __enter__(self) -> ServerHost:
        return self.start()
