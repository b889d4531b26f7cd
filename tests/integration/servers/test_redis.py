"""The Redis servers of the tests do what those that break them rely on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis as client_library
from tests.servers import process
from tests.servers.process import ServerError
from tests.servers.redis import RedisServer, available

PROGRAMS = available()


@pytest.fixture(scope="module", params=PROGRAMS)
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """One that may be broken; each test leaves it running."""
    with RedisServer(program=request.param) as server:
        yield server


def test_session_server_has_no_data_when_a_test_begins(redis: RedisServer, redis_url: str) -> None:
    assert redis_url == redis.url
    assert redis.execute("DBSIZE") == 0


def test_keys_of_all_databases_are_gone_when_it_is_emptied(server: RedisServer) -> None:
    server.execute("XADD", "s", "*", "a", "1")
    with server.client(7) as client:
        client.set("k", "v")
        run_id = server.info("server")["run_id"]
        server.empty()
        assert client.dbsize() == 0
    assert server.execute("DBSIZE") == 0
    assert server.info("server")["run_id"] == run_id


def test_data_and_run_id_are_new_when_it_is_restarted(server: RedisServer) -> None:
    server.execute("SET", "k", "v")
    run_id, port = server.info("server")["run_id"], server.port
    server.restart()
    assert server.execute("GET", "k") is None
    assert server.info("server")["run_id"] != run_id
    assert server.port == port


def test_clients_get_no_answer_when_it_is_suspended(server: RedisServer) -> None:
    server.suspend()
    try:
        with (
            client_library.Redis.from_url(server.url, socket_timeout=0.2, retry=None) as client,
            pytest.raises(client_library.TimeoutError),
        ):
            client.ping()
    finally:
        server.resume()
    assert server.is_ready()


@pytest.mark.parametrize("program", PROGRAMS)
def test_acknowledged_writes_survive_a_kill_when_it_appends(program: str) -> None:
    with RedisServer(program=program, appendonly=True) as server:
        server.execute("SET", "k", "v")
        server.kill()
        server.start()
        assert server.execute("GET", "k") == "v"
        server.lose_data()
        assert server.execute("GET", "k") is None


@pytest.mark.parametrize("appendonly", [False, True])
def test_later_writes_are_gone_when_it_is_rolled_back(appendonly: bool) -> None:
    with RedisServer(appendonly=appendonly) as server:
        server.execute("XADD", "s", "1-1", "a", "1")
        before = server.snapshot()
        server.execute("XADD", "s", "2-1", "a", "1")
        server.roll_back(before)
        assert [entry[0] for entry in server.execute("XRANGE", "s", "-", "+")] == ["1-1"]


def test_missing_program_is_an_error_when_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_PATH", "/nowhere")
    assert available() == ["redis-server"]
    with pytest.raises(ServerError, match="packaging/build/need test"):
        RedisServer().__enter__()
