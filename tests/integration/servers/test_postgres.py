"""The PostgreSQL server of the tests does what those that break it rely on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from tests.host.machine import CHECKOUT
from tests.servers import postgres as module
from tests.servers.fixtures import Servers
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import PostgresServer
from tests.servers.process import (
    ServerError,
    children,
    free_port,
    is_alive,
    process_state,
)
from tests.servers.reaper import watched
from tests.waiting import until


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """One that may be broken; each test leaves it running."""
    with PostgresServer() as server:
        yield server


def _write(server: PostgresServer, database: str) -> None:
    server.execute("CREATE TABLE t (n int)", database=database)
    server.execute("INSERT INTO t VALUES (%s)", [7], database=database)


def test_database_is_empty_and_gone_after_its_test(server: PostgresServer) -> None:
    with server.database() as first, server.database() as second:
        assert first != second
        name = first.rpartition("/")[2]
        with closing(psycopg.connect(first)) as connection:  # still connected when it is dropped
            connection.execute("SELECT 1")
    assert not server.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name])


@pytest.mark.parametrize("how", ["fast", "immediate", "kill"])
def test_commits_survive_when_the_server_goes(server: PostgresServer, how: str) -> None:
    name, port = server.create_database(), server.port
    _write(server, name)
    pids = [server.pid, *children(server.pid)]
    if how == "kill":
        server.kill()
    else:
        server.stop(mode="fast" if how == "fast" else "immediate")
    assert not any(map(is_alive, pids))
    assert not server.running
    with pytest.raises(psycopg.OperationalError):
        server.execute("SELECT 1")
    server.start()
    assert server.port == port
    assert server.execute("SELECT n FROM t", database=name) == [(7,)]


def test_server_answers_again_when_it_was_suspended(server: PostgresServer) -> None:
    with closing(psycopg.connect(server.url(), autocommit=True)) as connection:
        connection.execute("SET statement_timeout = '30s'")
        server.suspend()
        try:
            states = {process_state(pid) for pid in [server.pid, *children(server.pid)]}
            assert states - {""} == {"T"}  # one that had just ended is waited for later
        finally:
            server.resume()
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_suspended_server_ends_when_it_is_stopped(server: PostgresServer) -> None:
    server.suspend()
    server.stop()
    assert not server.running
    server.start()


def test_clients_are_cut_off_when_backends_are_terminated(server: PostgresServer) -> None:
    with closing(psycopg.connect(server.url())) as connection:
        assert server.terminate_backends() >= 1
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")


def test_start_says_why_when_the_server_refuses() -> None:
    with pytest.raises(ServerError, match="no_such_setting"):
        PostgresServer(settings={"no_such_setting": "1"}).__enter__()


def test_missing_program_is_an_error_when_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PROGRAMS", CHECKOUT / "nowhere")
    with pytest.raises(ServerError, match="packaging/build/need test"):
        PostgresServer().__enter__()


def test_pool_gives_a_session_to_many_clients_when_it_is_in_front(
    servers: Servers, database: str
) -> None:
    server = servers.postgres()
    with PgBouncer(server, pool_size=1) as pool:
        url = pool.url(database.rpartition("/")[2])
        backends = set()
        with closing(psycopg.connect(url)) as one, closing(psycopg.connect(url)) as other:
            for connection in (one, other, one):
                found = connection.execute("SELECT pg_backend_pid()").fetchone()
                connection.commit()
                backends.add(found)
        assert len(backends) == 1
        pool.restart()
        with closing(psycopg.connect(url)) as connection:
            connection.execute("SELECT 1")


_LEFT_ALONE = """
import sys
from tests.servers.postgres import PostgresServer
server = PostgresServer().start()
if sys.argv[1] == "suspended":
    server.suspend()
print(server.pid, server.directory, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("state", ["running", "suspended"])
def test_server_and_files_are_gone_when_its_pytest_was_killed(state: str) -> None:
    with watched(
        subprocess.Popen(
            [sys.executable, "-c", _LEFT_ALONE, state],
            cwd=CHECKOUT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
    ) as owner:
        assert owner.stdout
        pid, directory = owner.stdout.readline().split()
        pids = [int(pid), *children(int(pid))]
        assert len(pids) > 4
        os.kill(owner.pid, signal.SIGKILL)
    until(
        lambda: not os.path.exists(directory) and not any(map(is_alive, pids)),
        timeout_s=60,
        what="the end of a server that nobody owns",
    )


def test_port_is_not_one_that_a_client_could_be_given() -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(1024 < free_port() < first for _ in range(50))
