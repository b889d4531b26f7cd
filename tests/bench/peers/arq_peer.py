"""arq on Redis: a lock and a result key per job."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from arq import create_pool
from arq.connections import RedisSettings
from tests.bench.peers.tally import Tally

tally = Tally()


async def noop(ctx: dict[str, Any], n: int, text: str) -> None:
    tally.add()


class WorkerSettings:
    functions = (noop,)
    redis_settings = RedisSettings.from_dsn(os.environ["URL"])
    max_jobs = 100
    keep_result = 0
    poll_delay = 0.05
    handle_signals = True


async def _load(count: int) -> None:
    pool = await create_pool(WorkerSettings.redis_settings)
    for _ in range(0, count, 100):
        await asyncio.gather(*(pool.enqueue_job("noop", 1, "x" * 400) for _ in range(100)))
    await pool.aclose()


def load(count: int) -> None:
    asyncio.run(_load(count))
