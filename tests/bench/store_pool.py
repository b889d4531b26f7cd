"""What borrowing a connection costs: our pool beside psycopg_pool, and a unit of one SELECT on it.

    python -m tests.bench.store_pool [--rounds 5]

Rounds in turns on a PostgreSQL server of its own; medians, in processor time of this process. Both
pools hold connections that are made already; 1 and 16 borrowers.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool
from tests.servers.postgres import PostgresServer

from cordata.config.sections import StoreConfig
from cordata.store.postgres.address import addresses
from cordata.store.postgres.clock import FleetClock
from cordata.store.postgres.connector import Connector
from cordata.store.postgres.pool import Pool

SIZE = 10
BORROWED = 20_000
SELECTED = 4_000


async def cost_us(borrow: Callable[[], Awaitable[None]], count: int, borrowers: int) -> float:
    """Processor time of one `borrow`."""

    async def work() -> None:
        for _ in range(count // borrowers):
            await borrow()

    begun = time.process_time()
    async with asyncio.TaskGroup() as group:
        for _ in range(borrowers):
            group.create_task(work())
    return (time.process_time() - begun) / (count // borrowers * borrowers) * 1e6


def ours(pool: Pool) -> dict[str, Callable[[], Awaitable[None]]]:
    """Borrowing alone, and with a SELECT on the pipelined connection."""
    loop = asyncio.get_running_loop()

    async def borrow() -> None:
        async with pool.connection(loop.time() + 10):
            pass

    async def select() -> None:
        async with pool.connection(loop.time() + 10) as connection:
            await connection.execute("SELECT 1 AS one")

    return {"borrow": borrow, "select": select}


def theirs(pool: AsyncConnectionPool[Any]) -> dict[str, Callable[[], Awaitable[None]]]:
    """The same with psycopg's connections and cursors, prepared."""

    def connection() -> AbstractAsyncContextManager[psycopg.AsyncConnection[Any]]:
        return pool.connection(timeout=10)

    async def borrow() -> None:
        async with connection():
            pass

    async def select() -> None:
        async with connection() as found:
            await (await found.execute("SELECT 1 AS one", prepare=True)).fetchall()

    return {"borrow": borrow, "select": select}


async def measure(url: str, rounds: int) -> None:
    """Print a line for each kind of work."""
    config = StoreConfig(url=url, pool_size=SIZE)
    connector = Connector(*addresses(config, None), config, FleetClock())
    mine = Pool(connector.connect, size=SIZE)
    plain = {"autocommit": True}
    async with AsyncConnectionPool(url, min_size=SIZE, max_size=SIZE, kwargs=plain) as other:
        await other.wait()
        deadline = asyncio.get_running_loop().time() + 10
        held = [await mine.acquire(deadline) for _ in range(SIZE)]
        for connection in held:
            mine.release(connection)
        works = {"cordata": ours(mine), "psycopg_pool": theirs(other)}
        for borrowers in (1, 16):
            for kind, count in (("borrow", BORROWED), ("select", SELECTED)):
                found: dict[str, list[float]] = {name: [] for name in works}
                for _ in range(rounds):
                    for name, work in works.items():
                        found[name].append(await cost_us(work[kind], count, borrowers))
                medians = {name: statistics.median(times) for name, times in found.items()}
                shown = ", ".join(f"{name} {time:.1f} us" for name, time in medians.items())
                ratio = medians["psycopg_pool"] / medians["cordata"]
                print(f"{kind}, {borrowers} borrowers: {shown}; {ratio:.1f}x", flush=True)
    mine.close()


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with PostgresServer() as server:
        asyncio.run(measure(server.url(), options.rounds))


if __name__ == "__main__":
    main()
