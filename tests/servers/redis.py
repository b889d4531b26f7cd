"""Redis or Valkey on loopback, alone, as a replica, under TLS or watched by Sentinels."""

from __future__ import annotations

import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.servers.process import Server, ServerError, as_user, find_program
from tests.waiting import until

_PROGRAMS = ("redis-server", "valkey-server")
_SETTINGS = {
    "databases": "1000",
    "save": '""',
    "bind": "127.0.0.1",
    "enable-debug-command": "local",
    "repl-diskless-sync-delay": "0",
    "repl-ping-replica-period": "1",
}


def available() -> list[str]:
    """The programs that are installed; Debian 12 has no valkey. Never empty."""
    found = []
    for program in _PROGRAMS:
        with suppress(ServerError):
            find_program(program)
            found.append(program)
    return found or [_PROGRAMS[0]]  # the test that uses it says what is missing


class RedisCommands(ABC):
    """What a test asks a server for, wherever that runs."""

    @abstractmethod
    def client(self) -> AbstractContextManager[Any]:
        """A synchronous `redis.Redis` for what a test looks at or breaks."""

    def execute(self, *words: object) -> Any:
        """One command on database 0; its answer, with text decoded."""
        with self.client() as client:
            return client.execute_command(*words)

    def info(self, section: str = "default") -> dict[str, Any]:
        """INFO of one section."""
        found: dict[str, Any] = self.execute("INFO", section)
        return found

    def all_written(self) -> bool:
        """Whether the append-only file has all: a slow sync of it holds back writes for seconds."""
        return not self.info("persistence").get("aof_buffer_length")

    def empty(self) -> None:
        """Remove all keys of all databases, streams and groups with them; the run id stays."""
        self.execute("FLUSHALL")


class RedisServer(Server, RedisCommands):
    """A server without data. Nothing is written to disk unless `appendonly`: stop empties it."""

    def __init__(
        self,
        *,
        program: str = "redis-server",
        appendonly: bool = False,
        tls: bool = False,
        password: str = "",
        replica_of: RedisServer | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """`tls`: a CA made for it, no plain port; a replica has its master's.

        `config`: further lines of redis.conf.
        """
        self.name = program.removesuffix("-server")
        super().__init__()
        self.program = program
        self.replica_of = replica_of
        self.tls: bool = tls or (replica_of is not None and replica_of.tls)
        self.password: str = password or (replica_of.password if replica_of else "")
        self.settings = {
            **_SETTINGS,
            "dir": str(self.directory),
            "appendonly": "yes" if appendonly else "no",
            "port": str(self.port),
            **(self.tls_settings(self.port) if self.tls else {}),
            **(config or {}),
        }
        if self.password:
            self.settings |= {"requirepass": self.password, "masterauth": self.password}
        if replica_of:
            self.settings["replicaof"] = f"127.0.0.1 {replica_of.port}"
        self._config = self.directory / "redis.conf"

    @property
    def ca(self) -> Path:
        """Certificate of the CA that signed the server's."""
        return self.replica_of.ca if self.replica_of else self.directory / "ca.crt"

    def tls_settings(self, port: int) -> dict[str, str]:
        """What this server, its replicas and its Sentinels need to speak TLS only."""
        if not self.ca.exists():
            self._make_certificates()
        return {
            "port": "0",
            "tls-port": str(port),
            "tls-cert-file": str(self.ca.with_name("crt")),
            "tls-key-file": str(self.ca.with_name("key")),
            "tls-ca-cert-file": str(self.ca),
            "tls-auth-clients": "no",
            "tls-replication": "yes",
        }

    @property
    def url(self) -> str:
        """URL of database 0."""
        return self.database_url(0)

    def database_url(self, number: int) -> str:
        """URL of one of its 1000 databases."""
        secret = f":{self.password}@" if self.password else ""
        at = f"{secret}127.0.0.1:{self.port}/{number}"
        return f"rediss://{at}?ssl_ca_certs={self.ca}" if self.tls else f"redis://{at}"

    @contextmanager
    def client(self, number: int = 0) -> Iterator[Any]:
        """A synchronous `redis.Redis` for what a test looks at or breaks."""
        import redis

        with redis.Redis.from_url(
            self.database_url(number), decode_responses=True, socket_timeout=60
        ) as client:
            yield client

    def snapshot(self) -> Path:
        """A copy of the data as it is now, for `roll_back`."""
        copy = Path(f"{self.directory}/snapshot-{len(list(self.directory.glob('snapshot-*')))}")
        self.execute("SAVE")
        until(self.all_written, what="the append-only file's last write")
        self.suspend()
        try:
            copy.mkdir()
            for path in (self.directory / "dump.rdb", self.directory / "appendonlydir"):
                if path.is_dir():
                    shutil.copytree(path, copy / path.name)
                elif path.exists():
                    shutil.copy2(path, copy)
        finally:
            self.resume()
        return copy

    def roll_back(self, snapshot: Path) -> None:
        """Kill it and start it with the data of a snapshot, as after a restored backup."""
        self.kill()
        self._forget()
        shutil.copytree(snapshot, self.directory, dirs_exist_ok=True)
        if user := as_user():
            for path in self.directory.rglob("*"):
                shutil.chown(path, user["user"], user["group"])
        self.start()

    def lose_data(self) -> None:
        """Kill it and start it without data, as after the loss of its disk: a new run id, too."""
        self.kill()
        self._forget()
        self.start()

    def _forget(self) -> None:
        (self.directory / "dump.rdb").unlink(missing_ok=True)
        shutil.rmtree(self.directory / "appendonlydir", ignore_errors=True)

    def is_ready(self) -> bool:
        """Whether it answers and, as a replica, follows its master."""
        import redis

        try:
            with self.client() as client:
                client.ping()
                if self.replica_of and self.replica_of.running:
                    state: dict[str, Any] = client.execute_command("INFO", "replication")
                    return state.get("master_link_status") == "up" or state["role"] == "master"
        except (redis.ConnectionError, redis.TimeoutError, redis.BusyLoadingError):
            return False
        return True

    def _command(self) -> Sequence[str]:
        program = find_program(self.program)
        # Written once: Sentinel makes the server rewrite it, and that outlives a restart.
        if not self._config.exists():
            write_config(self._config, self.settings)
        return [program, str(self._config)]

    def _make_certificates(self) -> None:
        def openssl(*words: str) -> None:
            done = subprocess.run(
                [find_program("openssl"), *words],
                cwd=self.directory,
                capture_output=True,
                text=True,
            )
            if done.returncode:
                raise ServerError(f"openssl {words[0]}: {done.stderr}")

        # As strict as Python 3.13 checks them: RFC 5280's extensions are all there.
        new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        usage = ["-addext", "keyUsage=critical,keyCertSign,cRLSign"]
        for_ca = ["-subj", "/CN=cordata test CA", "-days", "2", "-out", "ca.crt"]
        openssl("req", "-x509", *new, "-keyout", "ca.key", *usage, *for_ca)
        openssl("req", *new, "-keyout", "key", "-subj", "/CN=127.0.0.1", "-out", "csr")
        (self.directory / "extensions").write_text(
            "subjectAltName=IP:127.0.0.1,DNS:localhost\nextendedKeyUsage=serverAuth\n"
            "keyUsage=critical,digitalSignature\nauthorityKeyIdentifier=keyid\n"
        )
        signed_by = ["-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2"]
        openssl("x509", "-req", "-in", "csr", *signed_by, "-extfile", "extensions", "-out", "crt")
        for path in self.directory.iterdir():
            path.chmod(0o644)


def write_config(path: Path, settings: Mapping[str, str]) -> None:
    """Write a configuration that the server itself may rewrite."""
    path.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    if user := as_user():
        shutil.chown(path, user["user"], user["group"])


def wait_for_offset(replica: RedisServer, master: RedisServer, *, timeout_s: float = 60.0) -> None:
    """Wait until a replica has all that its master has written so far."""
    target = master.info("replication")["master_repl_offset"]
    until(
        lambda: replica.info("replication").get("slave_repl_offset", -1) >= target,
        timeout_s=timeout_s,
        what="the replica's catching up",
    )
