"""Durable units per second of a store, beside what the disk or the server can do by hand.

    python -m tests.bench.store_commit [--store sqlite|postgres] [--seconds 3] [--only WORD]

Two units: six inserts (booking), and the same after three reads (webhook). On PostgreSQL each alone
in its transaction, and in batches; on SQLite those that wait share a commit anyway. By hand: rows
of one table on SQLite; on PostgreSQL those of a booking, by one INSERT ... SELECT FROM unnest(...)
per table and transaction, all in one round trip.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import uvloop
from tests.bench.servers import POSTGRES, ROOT, environment, spent_s
from tests.servers.postgres import PostgresServer
from tests.servers.reaper import watched

from cordata.config.sections import StoreConfig
from cordata.store import Chain, Queries, RuntimeStore, Tx, dialect_of, new_id, open_store

SQL = "tests.bench.sql"
TEXT = "x" * 600
_WARM_S = 0.5
#: Rows of one transaction by hand, on PostgreSQL.
_BY_HAND = 32
#: What, how many processes, and how many units each keeps under way.
LINES = {
    "sqlite": [
        (f"batch {unit}", processes, flight)
        for unit in ("booking", "webhook")
        for processes, flight in ((1, 1), (1, 16), (1, 64), (4, 1), (4, 16))
    ],
    "postgres": [
        (what, processes, 64 // processes)
        for processes in (1, 4)
        for what in ("by hand", "alone booking", "batch booking", "alone webhook", "batch webhook")
    ],
}


async def booking(tx: Tx) -> None:
    """Six inserts: customer, reservation, version, inbox, event, idempotency key."""
    now_us = tx.now_us
    key, customer, one = new_id(now_us), new_id(now_us), new_id(now_us)
    await tx.insert("bench_customer", id=customer, name="A Name", email=f"{key[20:]}@x.org")
    await tx.insert("bench_reservation", id=one, customer_id=customer, at=now_us)
    version = {"reservation_id": one, "version": 1, "hash": key, "data": TEXT, "at": now_us}
    await tx.insert("bench_version", **version)
    await tx.insert("bench_inbox", id=key, at=now_us, body=TEXT)
    await tx.publish("reservation.received", {"id": one}, key=one)
    response = {"scope": "bench", "key": key, "body_hash": "", "response": one}
    await tx.insert("idempotency", **response, created_at=now_us)


async def webhook(tx: Tx) -> None:
    """Three reads, and a booking."""
    new = new_id(tx.now_us)
    assert await tx.fetch_one("bench.find_key", key=new) is None
    assert await tx.fetch_one("bench.find_reservation", id=new) is None
    assert await tx.fetch_one("bench.find_customer", email=new) is None
    await booking(tx)


UNITS: dict[str, Callable[[Tx], Awaitable[None]]] = {"booking": booking, "webhook": webhook}


async def opened(where: str) -> RuntimeStore:
    """The embedded store of a directory, or that of a url."""
    config = StoreConfig(url=where) if "://" in where else StoreConfig()
    queries = Queries.load([SQL], dialect_of(config))
    return await open_store(config, state_dir=Path(where), runtime_dir=Path(where), queries=queries)


async def work(where: str, what: str, seconds: float, flight: int) -> dict[str, Any]:
    """Units until the time is up; counts and latencies."""
    how, name = what.split()
    unit, batch = UNITS[name], how == "batch"
    async with await opened(where) as store:

        async def one(end: float, latencies: list[float]) -> None:
            while (before := time.perf_counter()) < end:
                await store.run(unit, batch=batch)
                latencies.append(time.perf_counter() - before)

        async def many(seconds: float) -> list[float]:
            latencies: list[float] = []
            async with asyncio.TaskGroup() as group:
                for _ in range(flight):
                    group.create_task(one(time.perf_counter() + seconds, latencies))
            return sorted(latencies)

        warm = len(await many(_WARM_S))  # statements are prepared and merged
        before, begin, busy = store.stats(), time.perf_counter(), time.process_time()
        latencies = await many(seconds)
        took, stats = time.perf_counter() - begin, store.stats()
        return {
            "units": len(latencies) / took,
            "count": len(latencies) + warm,
            "batch": (stats.units - before.units) / max(1, stats.commits - before.commits),
            "cpu_us": (time.process_time() - busy) / len(latencies) * 1e6,
            "p50_ms": latencies[len(latencies) // 2] * 1e3,
            "p99_ms": latencies[int(len(latencies) * 0.99)] * 1e3,
        }


_TABLES = {
    "bench_customer (id, name, email)": "text, text, text",
    "bench_reservation (id, customer_id, at)": "text, text, bigint",
    "bench_version (reservation_id, version, hash, data, at)": "text, integer, text, text, bigint",
    "bench_inbox (id, at, body)": "text, bigint, text",
    "event (id, type, key, payload, due_at, created_at)": (
        "text, text, text, text, bigint, bigint"
    ),
    "idempotency (scope, key, body_hash, response, created_at)": "text, text, text, text, bigint",
}


def by_hand(url: str, seconds: float) -> dict[str, Any]:
    """The rows of a booking on PostgreSQL: no reads, no units, no answers."""
    import psycopg

    statements = []
    for table, types in _TABLES.items():
        arrays = ", ".join(f"%s::{kind}[]" for kind in types.split(", "))
        statements.append(f"INSERT INTO {table} SELECT * FROM unnest({arrays})")

    def rows() -> list[list[tuple[object, ...]]]:
        found: list[list[tuple[object, ...]]] = [[] for _ in statements]
        for _ in range(_BY_HAND):
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
                count += _BY_HAND
            return count, time.perf_counter() - begin

        warm, _ = many(_WARM_S)
        busy = time.process_time()
        count, took = many(seconds)
        cpu_us = (time.process_time() - busy) / count * 1e6
        figures = {"units": count / took, "count": count + warm, "cpu_us": cpu_us}
        return figures | {"batch": float(_BY_HAND), "p50_ms": 0.0, "p99_ms": 0.0}


def on_disk(folder: Path, per_commit: int, seconds: float) -> float:
    """Rows per second of plain sqlite3 in one process, `per_commit` of them per sync."""
    path = folder / f"bare{per_commit}.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for setting in ("journal_mode = WAL", "synchronous = FULL", "wal_autocheckpoint = 4000"):
            connection.execute(f"PRAGMA {setting}")
        connection.execute("CREATE TABLE booking (id TEXT PRIMARY KEY, body TEXT)")
        count, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < seconds:
            connection.execute("BEGIN IMMEDIATE")
            for _ in range(per_commit):
                row = (new_id(time.time_ns() // 1000), TEXT)
                connection.execute("INSERT INTO booking VALUES (?, ?)", row)
            connection.execute("COMMIT")
            count += per_commit
        return count / (time.perf_counter() - begin)


def together(
    where: str, what: str, processes: int, flight: int, seconds: float
) -> list[dict[str, Any]]:
    """What each of so many processes found."""
    command = [sys.executable, "-m", "tests.bench.store_commit", "--work", what, "--where", where]
    command += ["--seconds", str(seconds), "--flight", str(flight)]
    children = [
        watched(subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, env=environment()))
        for _ in range(processes)
    ]
    return [json.loads(child.communicate()[0]) for child in children]


async def measure(
    where: str, line: tuple[str, int, int], seconds: float, server: PostgresServer | None
) -> float:
    """Print one line; units per second in all."""
    what, processes, flight = line
    busy_s = spent_s(server.pid) if server else 0.0
    async with await opened(where) as store:
        await store.migrate([Chain("bench", SQL)])
        results = await asyncio.to_thread(together, where, what, processes, flight, seconds)
    rates: list[float] = [result["units"] for result in results]
    busy_s = (spent_s(server.pid) if server else 0.0) - busy_s

    def mean(key: str) -> float:
        return sum(float(result[key]) for result in results) / len(results)

    print(
        f"{what:14} {processes} x {flight:2} in flight {sum(rates):7.0f} units/s"
        f"   batch {mean('batch'):5.1f}   p50 {mean('p50_ms'):5.1f} ms"
        f"   p99 {mean('p99_ms'):5.1f} ms   cpu {mean('cpu_us'):4.0f} us/unit"
        f"   server {busy_s / sum(result['count'] for result in results) * 1e6:4.0f}"
        f"   slowest/fastest {min(rates) / max(rates):.2f}",
        flush=True,
    )
    return sum(rates)


def main() -> None:
    """Print the table, or be one of its processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", choices=list(LINES), default="sqlite")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--where", help="directory of a file system, or url of an empty database")
    parser.add_argument("--only", default="", help="of the lines, those with this word")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--flight", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work == "by hand":
        print(json.dumps(by_hand(given.where, given.seconds)))
        return
    if given.work:
        print(json.dumps(uvloop.run(work(given.where, given.work, given.seconds, given.flight))))
        return
    print(f"python {sys.version.split()[0]}, {os.cpu_count()} cores, {given.store}")
    lines = [line for line in LINES[given.store] if given.only in line[0]]
    with ExitStack() as stack:
        if given.store == "sqlite":
            made = tempfile.TemporaryDirectory(dir=given.where or ROOT, prefix=".bench-")
            folder = Path(stack.enter_context(made))
            for per_commit in (1, 64):
                rate = on_disk(folder, per_commit, given.seconds / 2)
                print(f"the disk: {rate:7.0f} rows/s in commits of {per_commit}", flush=True)
            for number, line in enumerate(lines):
                (folder / str(number)).mkdir()
                uvloop.run(measure(str(folder / str(number)), line, given.seconds, None))
            return
        server, url = None, given.where
        if not url:
            server = stack.enter_context(PostgresServer(durable=True, settings=POSTGRES))
            url = stack.enter_context(server.database())
        hand = 0.0
        for line in lines:
            rate = uvloop.run(measure(url, line, given.seconds, server))
            if line[0] == "by hand":
                hand = rate
            elif hand and line[0].startswith("batch"):
                print(f"  {rate / hand:.0%} of that by hand")


if __name__ == "__main__":
    main()
