"""The master that Sentinels name, behind all that may guard it, while one after the other dies."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.servers.redis import RedisServer, available, wait_for_offset
from tests.servers.sentinel import Sentinel

from cordata.broker.redis.address import parse_url
from cordata.broker.redis.server import RedisServer as Server
from cordata.errors import BrokerUnavailable

OURS, THEIRS = "of-redis", "of-the-sentinels"


def server(
    sentinel: Sentinel, *, ca: bool = True, password: str = OURS, theirs: str = THEIRS
) -> Server:
    hosts = ",".join(f"{host}:{port}" for host, port in sentinel.addresses)
    files = f"?ssl_ca_certs={sentinel.master.ca}" if ca else ""
    address = parse_url(f"rediss+sentinel://{hosts}/{sentinel.service}/0{files}")
    return Server(address, password=password, sentinel_password=theirs, timeout_s=3.0)


async def reached(one: Server) -> str:
    """The run id of the server that a new connection finds."""
    one.close()
    pipe = one.pipeline()
    pipe.set("reached", "1")
    await asyncio.sleep(one.pause_s)
    assert await one.execute(pipe) == [True]
    one.close()
    return one.run_id


async def refused(one: Server) -> tuple[str, str]:
    """Why it finds none, and what to do."""
    with pytest.raises(BrokerUnavailable) as caught:
        await one.connect()
    one.close()
    return str(caught.value), caught.value.hint or ""


@pytest.mark.parametrize("program", available())
async def test_master_is_found_over_tls_with_both_passwords_when_it_was_replaced(
    program: str,
) -> None:
    with (
        RedisServer(program=program, tls=True, password=OURS) as master,
        RedisServer(program=program, replica_of=master) as replica,
        Sentinel(master, count=3, password=THEIRS) as sentinel,
    ):
        one = server(sentinel)
        assert await reached(one) == run_id(master)
        wait_for_offset(replica, master)
        sentinel.servers[0].kill()
        assert await reached(one) == run_id(master)  # another one tells as well
        master.kill()
        await asyncio.to_thread(wait_for_master, sentinel, replica)
        assert await reached(one) == run_id(replica)

        said, hint = await refused(server(sentinel, theirs="wrong"))
        assert "invalid username-password" in said and "credential sentinel-password" in hint
        said, hint = await refused(server(sentinel, password="wrong"))
        assert "invalid username-password" in said and "credential redis-password" in hint
        said, _ = await refused(server(sentinel, ca=False))
        assert "self-signed certificate" in said


async def test_sentinel_that_answered_is_asked_first_when_another_is_silent() -> None:
    with RedisServer(tls=True, password=OURS) as master:
        with Sentinel(master, count=2, password=THEIRS) as sentinel:
            one = server(sentinel)
            silent, other = (server.port for server in sentinel.servers)
            asked = ports_asked(one)
            sentinel.servers[0].suspend()
            for _ in range(3):
                await reached(one)
            sentinel.servers[0].resume()
    assert asked == [silent, *[other] * 3]


async def test_another_sentinel_is_asked_when_the_master_of_the_first_is_gone() -> None:
    """As one that was cut off with a master that has been replaced since."""
    with RedisServer() as old, RedisServer() as master:
        with Sentinel(old) as cut_off, Sentinel(master) as sentinel:
            hosts = [*cut_off.addresses, *sentinel.addresses]
            names = ",".join(f"{host}:{port}" for host, port in hosts)
            url = f"redis+sentinel://{names}/{sentinel.service}/0"
            one = Server(parse_url(url), timeout_s=3.0)
            assert await reached(one) == run_id(old)
            old.kill()
            with pytest.raises(BrokerUnavailable) as caught:
                await reached(one)
            said = str(caught.value)
            assert f":{old.port}" in said
            assert [await reached(one) for _ in range(2)] == [run_id(master)] * 2


def ports_asked(one: Server) -> list[int]:
    """The ports of the Sentinels that it asks from now on."""
    ports = list[int]()
    clients: Any = one._sentinel
    for client in clients.sentinels:

        async def ask(
            port: int = client.connection_pool.connection_kwargs["port"],
            ask: Any = client.sentinel_masters,
        ) -> Any:
            ports.append(port)
            return await ask()

        client.sentinel_masters = ask
    return ports


def wait_for_master(sentinel: Sentinel, server: RedisServer) -> None:
    sentinel.wait_for_master(server)


def run_id(server: RedisServer) -> str:
    return str(server.info("server")["run_id"])
