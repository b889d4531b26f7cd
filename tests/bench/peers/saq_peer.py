"""saq on Redis: job states in Redis, swept when a worker dies."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from saq import Queue
from tests.bench.peers.tally import Tally

tally = Tally()
queue = Queue.from_url(os.environ["URL"])


async def noop(ctx: Any, *, n: int, text: str) -> None:
    tally.add()


settings = {"queue": queue, "functions": [noop], "concurrency": 100}


async def _load(count: int) -> None:
    await queue.connect()
    for _ in range(0, count, 100):
        await asyncio.gather(
            *(queue.enqueue("noop", n=1, text="x" * 400, ttl=1) for _ in range(100))
        )
    await queue.disconnect()


def load(count: int) -> None:
    asyncio.run(_load(count))
