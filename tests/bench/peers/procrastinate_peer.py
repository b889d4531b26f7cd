"""procrastinate on PostgreSQL."""

from __future__ import annotations

import asyncio
import os

from procrastinate import App, PsycopgConnector
from tests.bench.peers.tally import Tally

app = App(connector=PsycopgConnector(conninfo=os.environ["URL"]))
tally = Tally()


@app.task(name="noop")
async def noop(n: int, text: str) -> None:
    tally.add()


async def _load(count: int) -> None:
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        for _ in range(0, count, 500):
            await noop.batch_defer_async(*({"n": 1, "text": "x" * 400} for _ in range(500)))


async def work() -> None:
    async with app.open_async():
        await app.run_worker_async(concurrency=20)


def load(count: int) -> None:
    asyncio.run(_load(count))


if __name__ == "__main__":
    asyncio.run(work())
