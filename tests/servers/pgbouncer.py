"""PgBouncer with transaction pooling in front of PostgreSQL: a session per transaction."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
from collections.abc import Sequence
from contextlib import suppress

from tests.servers.postgres import USER, PostgresServer
from tests.servers.process import Server, find_program


class PgBouncer(Server):
    """In front of `server`, for all its databases. Debian 12 has 1.18: no prepared statements."""

    name = "pgbouncer"

    def __init__(self, server: PostgresServer, *, pool_size: int = 10) -> None:
        """`pool_size`: connections to the server per database."""
        super().__init__()
        self.server = server
        self.pool_size = pool_size

    def url(self, database: str = "postgres") -> str:
        """URL of a database of the server, through the pool."""
        secret = f":{self.server.password}" if self.server.password else ""
        return f"postgresql://{USER}{secret}@127.0.0.1:{self.port}/{database}"

    @property
    def prepares(self) -> bool:
        """Whether it knows prepared statements: from 1.21 on."""
        command = [find_program("pgbouncer"), "--version"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        found = re.search(r"PgBouncer (\d+)\.(\d+)", said)
        assert found is not None, said
        return (int(found[1]), int(found[2])) >= (1, 21)

    def is_ready(self) -> bool:
        """Whether it listens."""
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 10):
            return True
        return False

    def stop(self, *, timeout_s: float = 120.0) -> None:
        """Stop it at once: its SIGTERM waits for clients in some versions and not in others."""
        self._end(signal.SIGQUIT, timeout_s)

    def _command(self) -> Sequence[str]:
        program = find_program("pgbouncer")
        users = self.directory / "users"
        users.write_text(f'"{USER}" "{self.server.password or ""}"\n')
        users.chmod(0o644)
        config = self.directory / "pgbouncer.ini"
        config.write_text(
            f"""[databases]
* = host=127.0.0.1 port={self.server.port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {self.port}
unix_socket_dir =
auth_type = {"scram-sha-256" if self.server.password else "trust"}
auth_file = {users}
pool_mode = transaction
max_client_conn = 500
default_pool_size = {self.pool_size}
server_login_retry = 0.2
server_round_robin = 1
log_connections = 0
log_disconnections = 0
"""
        )
        config.chmod(0o644)
        return [program, "-q", str(config)]
