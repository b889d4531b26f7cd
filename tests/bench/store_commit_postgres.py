"""Durable units per second on PostgreSQL: alone, in batches, and a hand-written loop.

    python -m tests.bench.store_commit_postgres [--seconds 3] [--url URL]

Two units: the six inserts of store_commit.py, and what a webhook does (three reads, an INSERT whose
id is needed, six more). The bare loop sends the same rows by one INSERT ... SELECT FROM unnest(...)
per table and transaction, all in one round trip: no reads, no units, no answers. Without --url a
server of its own is started, with fsync, on this file system.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import uvloop
from tests.bench.store_commit import TEXT, booking
from tests.servers.postgres import PostgresServer
from tests.servers.reaper import watched

from cordata.config.sections import StoreConfig
from cordata.store import Chain, Queries, Tx, new_id
from cordata.store.postgres.store import PostgresStore

ROOT = Path(__file__).parents[2]
SQL = "tests.bench.sql"
#: As many requests at once as the webhook's bench has, shared by the processes.
FLIGHT = 64
#: Rows of one transaction of the bare loop.
BARE = 32


async def webhook(tx: Tx) -> str:
    """Three reads, an INSERT whose result is needed, six whose result is not."""
    now_us = tx.now_us
    key, reservation = new_id(now_us), new_id(now_us)
    assert await tx.fetch_one("bench.find_key", key=key) is None
    assert await tx.fetch_one("bench.find_reservation", id=reservation) is None
    email = f"{key[20:]}@x.org"
    assert await tx.fetch_one("bench.find_customer", email=email) is None
    row = await tx.fetch_one("bench.new_customer", id=new_id(now_us), name="A Name", email=email)
    assert row is not None
    await tx.write("bench.reservation", id=reservation, customer_id=row["id"], at=now_us)
    await tx.write("bench.version", id=reservation, hash=key, data=TEXT, at=now_us)
    await tx.write("bench.inbox", id=key, at=now_us, body=TEXT)
    await tx.publish("reservation.received", {"id": reservation}, key=reservation)
    await tx.write("bench.key", key=key, response=reservation, at=now_us)
    return reservation


UNITS: dict[str, Callable[[Tx], Awaitable[str]]] = {"booking": booking, "webhook": webhook}


async def opened(url: str) -> PostgresStore:
    queries = Queries.load([SQL], "postgres")
    return await PostgresStore.open(StoreConfig(url=url), queries=queries)


async def work(url: str, unit: str, alone: bool, seconds: float, flight: int) -> dict[str, Any]:
    """Units until the time is up; counts and latencies."""
    latencies: list[float] = []
    async with await opened(url) as store:
        run = store._runner.run_now if alone else store.run
        work = UNITS[unit]

        async def one(end: float, latencies: list[float]) -> None:
            while (before := time.perf_counter()) < end:
                await run(work)
                latencies.append(time.perf_counter() - before)

        async def many(seconds: float, latencies: list[float]) -> None:
            async with asyncio.TaskGroup() as group:
                for _ in range(flight):
                    group.create_task(one(time.perf_counter() + seconds, latencies))

        await many(0.5, latencies)  # statements are prepared and merged
        warm = len(latencies)
        latencies.clear()
        before = store.stats()
        begin, busy = time.perf_counter(), time.process_time()
        await many(seconds, latencies)
        took, stats = time.perf_counter() - begin, store.stats()
        latencies.sort()
        return {
            "units": len(latencies) / took,
            "count": len(latencies) + warm,
            "batch": (stats.units - before.units) / max(1, stats.commits - before.commits),
            "cpu_us": (time.process_time() - busy) / len(latencies) * 1e6,
            "p50_ms": latencies[len(latencies) // 2] * 1e3,
            "p99_ms": latencies[int(len(latencies) * 0.99)] * 1e3,
        }


_BARE = {
    "bench_customer (id, name, email)": "text, text, text",
    "bench_reservation (id, customer_id, at)": "text, text, bigint",
    "bench_version (reservation_id, version, hash, data, at)": "text, integer, text, text, bigint",
    "bench_inbox (id, at, body)": "text, bigint, text",
    "event (id, type, key, payload, due_at, created_at)": (
        "text, text, text, text, bigint, bigint"
    ),
    "idempotency (scope, key, body_hash, response, created_at)": "text, text, text, text, bigint",
}


def bare(url: str, seconds: float) -> dict[str, Any]:
    """The same rows by hand."""
    import psycopg

    statements = []
    for table, types in _BARE.items():
        arrays = ", ".join(f"%s::{kind}[]" for kind in types.split(", "))
        statements.append(f"INSERT INTO {table} SELECT * FROM unnest({arrays})")

    def rows() -> list[list[tuple[object, ...]]]:
        found: list[list[tuple[object, ...]]] = [[] for _ in statements]
        for _ in range(BARE):
            now_us = time.time_ns() // 1000
            key, customer, one = new_id(now_us), new_id(now_us), new_id(now_us)
            found[0].append((customer, "A Name", f"{key[20:]}@x.org"))
            found[1].append((one, customer, now_us))
            found[2].append((one, 1, key, TEXT, now_us))
            found[3].append((key, now_us, TEXT))
            found[4].append(
                (new_id(now_us), "reservation.received", one, f'{{"id":"{one}"}}', now_us, now_us)
            )
            found[5].append(("bench", key, "", one, now_us))
        return found

    with psycopg.connect(url, autocommit=True, prepare_threshold=0) as connection:

        def many(seconds: float) -> tuple[int, float]:
            count, begin = 0, time.perf_counter()
            while time.perf_counter() - begin < seconds:
                with connection.pipeline(), connection.transaction():
                    for statement, table in zip(statements, rows(), strict=True):
                        values = [list(column) for column in zip(*table, strict=True)]
                        connection.execute(statement.encode(), values)
                count += BARE
            return count, time.perf_counter() - begin

        warm, _ = many(0.5)
        busy = time.process_time()
        count, took = many(seconds)
        cpu = (time.process_time() - busy) / count * 1e6
        return {
            "units": count / took,
            "count": count + warm,
            "batch": float(BARE),
            "cpu_us": cpu,
            "p50_ms": 0,
            "p99_ms": 0,
        }


def server_seconds(server: PostgresServer | None) -> float:
    """CPU time that a server of ours has used, with its processes that ended."""
    if server is None:
        return 0.0
    pids = [server.pid]
    for task in Path(f"/proc/{server.pid}/task").iterdir():
        pids += map(int, (task / "children").read_text().split())
    ticks = 0
    for pid in pids:
        with suppress(FileNotFoundError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15] if pid == server.pid else fields[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def measure(
    url: str, what: str, processes: int, seconds: float, server: PostgresServer | None
) -> float:
    """One line for so many processes; units per second in all."""
    busy = server_seconds(server)
    command = [sys.executable, "-m", "tests.bench.store_commit_postgres", "--work", what]
    command += ["--url", url, "--seconds", str(seconds), "--flight", str(FLIGHT // processes)]
    path = {"PYTHONPATH": f"{ROOT / 'daemon'}:{ROOT}"}
    children = [
        watched(
            subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, env={**os.environ, **path})
        )
        for _ in range(processes)
    ]
    results = [json.loads(child.communicate()[0]) for child in children]
    rate = sum(float(result["units"]) for result in results)
    count = sum(result["count"] for result in results)
    busy = (server_seconds(server) - busy) / count * 1e6

    def mean(key: str) -> float:
        return sum(float(result[key]) for result in results) / len(results)

    print(
        f"{what:16} {processes} processes {rate:7.0f} units/s   batch {mean('batch'):5.1f}"
        f"   p50 {mean('p50_ms'):5.1f} ms   p99 {mean('p99_ms'):5.1f} ms"
        f"   cpu {mean('cpu_us'):4.0f} us/unit   server {busy:4.0f}",
        flush=True,
    )
    return rate


async def prepare(url: str) -> None:
    async with await opened(url) as store:
        await store.migrate([Chain("bench", SQL)])


def main() -> None:
    """Print the table, or be one of its processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--flight", type=int, default=FLIGHT)
    parser.add_argument("--url", help="an empty database; without it a server is started")
    parser.add_argument("--only", help="of the lines, those with this word")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work == "bare":
        print(json.dumps(bare(given.url, given.seconds)))
        return
    if given.work:
        how, unit = given.work.split()
        print(
            json.dumps(
                uvloop.run(work(given.url, unit, how == "alone", given.seconds, given.flight))
            )
        )
        return
    with ExitStack() as stack:
        url = given.url
        server = None
        if not url:
            settings = {"shared_buffers": "256MB", "max_wal_size": "2GB"}
            server = stack.enter_context(PostgresServer(durable=True, settings=settings))
            url = stack.enter_context(server.database())
        uvloop.run(prepare(url))
        print(f"python {sys.version.split()[0]}, {os.cpu_count()} cores, fsync on")
        lines = ["bare", "alone booking", "batch booking", "alone webhook", "batch webhook"]
        for processes in (1, 4):
            rates = {
                what: measure(url, what, processes, given.seconds, server)
                for what in lines
                if not given.only or given.only in what
            }
            for what, rate in rates.items():
                if what.startswith("batch") and "bare" in rates:
                    print(f"  {what}: {rate / rates['bare']:.0%} of the bare loop")


if __name__ == "__main__":
    main()
