"""The master is demoted while several tasks use it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest
from tests.integration.engine.parts import until
from tests.integration.redis.parts import server_of
from tests.servers.redis import RedisServer, available

from cordata.broker.redis.server import RedisServer as Server
from cordata.errors import BrokerUnavailable

#: Each demotion meets the tasks at other points of their commands.
DEMOTIONS, TASKS = 20, 10


async def write(one: Server) -> None:
    pipe = one.pipeline()
    pipe.set("key", "value")
    assert await one.execute(pipe) == [True]


async def wait(one: Server) -> None:
    await one.wait_for_entries("stream", b"$")


async def refused(one: Server, use: Callable[[Server], Awaitable[None]]) -> str:
    """Use it until it is unavailable. Returns why."""
    while True:
        try:
            await use(one)
        except BrokerUnavailable as error:
            return str(error)


async def is_written(one: Server) -> bool:
    try:
        await write(one)
    except BrokerUnavailable:
        return False
    return True


@pytest.mark.parametrize("program", available())
async def test_each_task_learns_that_the_master_is_gone_when_it_is_demoted(program: str) -> None:
    with RedisServer(program=program) as server:

        async def is_waiting() -> bool:
            return bool(server.info("clients")["blocked_clients"])

        for _ in range(DEMOTIONS):
            one = server_of(server.url)
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(refused(one, wait))]
                await until(is_waiting)
                tasks += [group.create_task(refused(one, write)) for _ in range(TASKS)]
                await write(one)
                await asyncio.to_thread(server.execute, "REPLICAOF", "127.0.0.1", 1)
            assert all(task.result() for task in tasks)
            assert not await is_written(one)
            server.execute("REPLICAOF", "NO", "ONE")
            one.close()
        await until(partial(is_written, one))
        one.close()
