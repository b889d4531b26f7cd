"""Fixtures of servers: one per test session, started by the first test that asks; fresh data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer


class Servers:
    """The servers of a test session. Leave them running: others use them after you."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._postgres: PostgresServer | None = None
        self._pgbouncer: PgBouncer | None = None
        self._redis: dict[str, RedisServer] = {}

    def postgres(self) -> PostgresServer:
        """The PostgreSQL server."""
        if self._postgres is None:
            self._postgres = self._stack.enter_context(PostgresServer())
        return self._postgres

    def pgbouncer(self) -> PgBouncer:
        """Transaction pooling in front of the PostgreSQL server."""
        if self._pgbouncer is None:
            self._pgbouncer = self._stack.enter_context(PgBouncer(self.postgres()))
        return self._pgbouncer

    def redis(self, program: str = "redis-server") -> RedisServer:
        """The server of a program (`tests.servers.redis.available()`), without data."""
        if program not in self._redis:
            self._redis[program] = self._stack.enter_context(RedisServer(program=program))
        server = self._redis[program]
        server.empty()
        return server


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """All servers of the session, each started when it is asked for."""
    with ExitStack() as stack:
        yield Servers(stack)


@pytest.fixture(scope="session")
def postgres(servers: Servers) -> PostgresServer:
    """The session's PostgreSQL server."""
    return servers.postgres()


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[str]:
    """URL of a fresh, empty database on the session's PostgreSQL server."""
    with postgres.database() as url:
        yield url


@pytest.fixture
def redis(servers: Servers) -> RedisServer:
    """The session's Redis server, without data."""
    return servers.redis()


@pytest.fixture
def redis_url(redis: RedisServer) -> str:
    """URL of the session's Redis server, without data."""
    return redis.url
