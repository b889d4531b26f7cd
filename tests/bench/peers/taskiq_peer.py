"""taskiq on Redis Streams: acknowledged after the task."""

from __future__ import annotations

import asyncio
import os

from taskiq_redis import RedisStreamBroker
from tests.bench.peers.tally import Tally

broker = RedisStreamBroker(url=os.environ["URL"])
tally = Tally()


@broker.task(task_name="noop")
async def noop(n: int, text: str) -> None:
    tally.add()


async def _load(count: int) -> None:
    await broker.startup()
    for _ in range(0, count, 100):
        await asyncio.gather(*(noop.kiq(1, "x" * 400) for _ in range(100)))
    await broker.shutdown()


def load(count: int) -> None:
    asyncio.run(_load(count))
