"""The host with the servers: reached by the others, broken and mended by the tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.host.machine import Host, find_tree
from tests.host.network import Network, start_all
from tests.host.servers import ServerHost

#: Prints what both servers answer, or the name of the first error.
_CLIENT = """
import sys, psycopg, redis
try:
    with psycopg.connect(sys.argv[1], connect_timeout=2) as connection:
        print(connection.execute("SELECT current_database()").fetchone()[0], end=" ")
    with redis.Redis.from_url(sys.argv[2], socket_connect_timeout=2) as client:
        print(client.ping())
except (psycopg.Error, redis.RedisError) as error:
    print(type(error).__name__, error)
"""


@pytest.fixture(scope="module", params=["redis-server", "valkey-server"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[ServerHost, Host]]:
    """The servers and a client; each test leaves both servers running."""
    tree = find_tree()
    with Network() as network:
        servers = ServerHost(tree, network=network, redis=request.param)
        client = Host(tree, network=network)
        try:
            start_all(servers, client)
            yield servers, client
        finally:
            servers.stop()
            client.stop()


def _ask(pair: tuple[ServerHost, Host], *, secret: bool = True) -> str:
    servers, client = pair
    urls = [servers.postgres.url(), servers.redis.url]
    if not secret:
        urls = [url.replace("roped-up", "wrong") for url in urls]
    return client.run("python3", "-c", _CLIENT, *urls).stdout.strip()


def test_both_are_reached_with_the_password_only(pair: tuple[ServerHost, Host]) -> None:
    assert _ask(pair) == "cordata True"
    assert "password authentication failed" in _ask(pair, secret=False)


def test_servers_are_out_of_reach_but_for_the_test_when_their_host_is_cut_off(
    pair: tuple[ServerHost, Host],
) -> None:
    servers = pair[0]
    servers.cut()
    assert "timeout" in _ask(pair)
    assert servers.postgres.execute("SELECT 1") == [(1,)]
    assert servers.redis.execute("PING")
    servers.heal()
    assert _ask(pair) == "cordata True"


def test_data_is_there_when_server_or_host_come_back(pair: tuple[ServerHost, Host]) -> None:
    servers = pair[0]
    servers.postgres.empty()
    servers.postgres.execute("CREATE TABLE t AS SELECT 7 AS n")
    servers.redis.execute("XADD", "s", "1-1", "a", "1")
    for unit in (servers.postgres, servers.redis):
        for end in (unit.kill, unit.stop):
            assert unit.running
            end()
            assert not unit.running
            unit.start()
        unit.suspend()
        unit.resume()
    servers.lose_power()
    assert "timeout" in _ask(pair)
    servers.start()
    assert servers.postgres.execute("SELECT n FROM t") == [(7,)]
    assert servers.redis.execute("XLEN", "s") == 1
    assert _ask(pair) == "cordata True"


def test_redis_forgets_all_or_the_last_when_its_data_is_lost(
    pair: tuple[ServerHost, Host],
) -> None:
    redis = pair[0].redis
    redis.empty()
    redis.execute("XADD", "s", "1-1", "a", "1")
    before = redis.snapshot()
    redis.execute("XADD", "s", "2-1", "a", "1")
    run_id = redis.info("server")["run_id"]
    redis.roll_back(before)
    assert [entry[0] for entry in redis.execute("XRANGE", "s", "-", "+")] == ["1-1"]
    redis.lose_data()
    assert redis.execute("DBSIZE") == 0
    assert redis.info("server")["run_id"] != run_id
