"""Sentinels that watch a Redis and make its replica the master when it is gone."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from tests.servers.process import Server, find_program
from tests.servers.redis import RedisServer, write_config
from tests.waiting import until


class _Sentinel(Server):
    name = "sentinel"

    def __init__(self, master: RedisServer, lines: Sequence[str], password: str) -> None:
        super().__init__()
        self.master = master
        self.password = password
        self._config = self.directory / "sentinel.conf"
        self._settings = {"port": str(self.port), "bind": "127.0.0.1", "dir": str(self.directory)}
        if master.tls:
            self._settings |= master.tls_settings(self.port)
        if password:
            self._settings["requirepass"] = password
        self._lines = lines

    def execute(self, *words: object) -> Any:
        import redis

        tls: dict[str, Any] = {"ssl": True, "ssl_ca_certs": str(self.master.ca)}
        with redis.Redis(
            host="127.0.0.1",
            port=self.port,
            password=self.password or None,
            decode_responses=True,
            socket_timeout=60,
            **(tls if self.master.tls else {}),
        ) as client:
            return client.execute_command(*words)

    def is_ready(self) -> bool:
        import redis

        try:
            return bool(self.execute("PING"))
        except (redis.ConnectionError, redis.TimeoutError):
            return False

    def _command(self) -> Sequence[str]:
        if not self._config.exists():
            write_config(self._config, self._settings)
            with self._config.open("a") as file:
                file.writelines(f"sentinel {line}\n" for line in self._lines)
        return [find_program(self.master.program), str(self._config), "--sentinel"]


class Sentinel:
    """`count` Sentinels around a running master; it fails over about a second after its death.

    `with` returns when each of them knows the others and every replica that the master has.
    """

    def __init__(
        self,
        master: RedisServer,
        *,
        count: int = 1,
        quorum: int | None = None,
        service: str = "main",
        down_after_ms: int = 500,
        password: str = "",
    ) -> None:
        """`quorum`: how many must agree that the master is down; the majority when not given.

        `password`: their own. They speak TLS if the master does.
        """
        self.service = service
        lines = [
            f"monitor {service} 127.0.0.1 {master.port} {quorum or count // 2 + 1}",
            f"down-after-milliseconds {service} {down_after_ms}",
            f"failover-timeout {service} 5000",
            f"parallel-syncs {service} 1",
        ]
        if master.password:
            lines.append(f"auth-pass {service} {master.password}")
        self.master = master
        self.servers = [_Sentinel(master, lines, password) for _ in range(count)]
        self._stack = ExitStack()

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of each."""
        return [("127.0.0.1", server.port) for server in self.servers]

    def wait_for_master(self, server: RedisServer, *, timeout_s: float = 120.0) -> None:
        """Wait until `server` is the master, by its own word and that of every Sentinel.

        One that learns it from the others calls it down for a moment.
        """
        import redis

        def is_master() -> bool:
            states = [self._state(one) for one in self.servers if one.running]
            try:
                role = server.info("replication")["role"]
            except redis.ConnectionError:  # the Sentinel that promotes it ends its connections
                return False
            return role == "master" and all(
                state.get("flags") == "master" and int(state["port"]) == server.port
                for state in states
            )

        until(is_master, timeout_s=timeout_s, what="the failover")

    def _state(self, server: _Sentinel) -> dict[str, str]:
        """What a Sentinel says of the master; empty: it takes no connection at this moment."""
        import redis

        try:
            answer = server.execute("SENTINEL", "MASTER", self.service)
        except redis.ConnectionError:  # as it does while it resets what it knows
            return {}
        # redis-py 6 leaves the pairs as they come
        pairs = zip(answer[::2], answer[1::2], strict=True) if isinstance(answer, list) else ()
        return dict(pairs) or answer

    def _know_each_other(self) -> bool:
        replicas = self.master.info("replication")["connected_slaves"]
        for server in self.servers:
            state = self._state(server)
            if not state:
                return False
            others, known = int(state["num-other-sentinels"]), int(state["num-slaves"])
            if others < len(self.servers) - 1 or known < replicas:
                return False
        return True

    def __enter__(self) -> Sentinel:
        with ExitStack() as stack:
            for server in self.servers:
                stack.callback(server.close)
            for server in self.servers:
                server.start()
            until(self._know_each_other, timeout_s=120, what="the Sentinels' meeting")
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()
