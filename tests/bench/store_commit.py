"""Durable units per second of the embedded store, beside what the disk itself can do.

    python -m tests.bench.store_commit [--seconds 3] [--folder DIR]

A unit is six small inserts, as a booking is. Each process keeps 16 units in flight.
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
from contextlib import closing
from pathlib import Path

import uvloop
from tests.servers.reaper import watched

from cordata.config.sections import StoreConfig
from cordata.store import Chain, Queries, Tx, new_id
from cordata.store.sqlite.store import SqliteStore

ROOT = Path(__file__).parents[2]
SQL = "tests.bench.sql"
TEXT = "x" * 600


async def booking(tx: Tx) -> str:
    """Six inserts: inbox, customer, reservation, version, event, idempotency key."""
    now_us = tx.now_us
    inbox, customer, reservation = new_id(now_us), new_id(now_us), new_id(now_us)
    await tx.execute("bench.inbox", id=inbox, at=now_us, body=TEXT)
    await tx.execute("bench.customer", id=customer, name="A Name", email=f"{inbox[:9]}@x.org")
    await tx.execute("bench.reservation", id=reservation, customer_id=customer, at=now_us)
    await tx.execute("bench.version", id=reservation, hash=inbox, data=TEXT, at=now_us)
    await tx.publish("reservation.received", {"id": reservation})
    await tx.execute("bench.key", key=inbox, response=reservation, at=now_us)
    return reservation


async def work(folder: Path, seconds: float, flight: int) -> dict[str, float]:
    """Units until the time is up; counts and latencies."""
    latencies: list[float] = []
    async with await SqliteStore.open(
        StoreConfig(), state_dir=folder, runtime_dir=folder, queries=Queries.load([SQL], "sqlite")
    ) as store:
        await store.run(booking)
        begin = time.perf_counter()
        busy = time.process_time()
        end = begin + seconds

        async def one() -> None:
            while (before := time.perf_counter()) < end:
                await store.run(booking)
                latencies.append(time.perf_counter() - before)

        async with asyncio.TaskGroup() as group:
            for _ in range(flight):
                group.create_task(one())
        took = time.perf_counter() - begin
        stats = store.stats()
        latencies.sort()
        return {
            "units": len(latencies) / took,
            "batch": stats.units / stats.commits,
            "cpu_us": (time.process_time() - busy) / len(latencies) * 1e6,
            "p50_ms": latencies[len(latencies) // 2] * 1e3,
            "p99_ms": latencies[int(len(latencies) * 0.99)] * 1e3,
        }


async def prepare(folder: Path) -> None:
    """A migrated database whose log has its full size, as on a system that runs for a while."""
    async with await SqliteStore.open(
        StoreConfig(), state_dir=folder, runtime_dir=folder, queries=Queries.load([SQL], "sqlite")
    ) as store:
        await store.migrate([Chain("bench", SQL)])


async def fold(folder: Path, stop: asyncio.Event) -> int:
    """The primary's checkpoints."""
    count = 0
    async with await SqliteStore.open(
        StoreConfig(), state_dir=folder, runtime_dir=folder, queries=Queries.load([SQL], "sqlite")
    ) as store:
        while not stop.is_set():
            if await store.wait("checkpoint", 0.2) and await store.checkpoint() is not None:
                count += 1
    return count


def bare(folder: Path, per_commit: int, seconds: float) -> float:
    """Bookings per second of plain sqlite3 in one process, `per_commit` of them per sync."""
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


async def measure(folder: Path, processes: int, seconds: float, flight: int) -> None:
    """One line for so many processes."""
    await prepare(folder)
    stop = asyncio.Event()
    command = [sys.executable, "-m", "tests.bench.store_commit", "--work", str(folder)]
    command += ["--seconds", str(seconds), "--flight", str(flight)]
    async with asyncio.TaskGroup() as group:
        folding = group.create_task(fold(folder, stop))
        children = [
            watched(
                await asyncio.create_subprocess_exec(
                    *command,
                    stdout=subprocess.PIPE,
                    cwd=ROOT,
                    env={**os.environ, "PYTHONPATH": f"{ROOT / 'daemon'}:{ROOT}"},
                )
            )
            for _ in range(processes)
        ]
        outputs = [(await child.communicate())[0] for child in children]
        stop.set()
    results = [json.loads(output) for output in outputs]
    rates = [result["units"] for result in results]

    def mean(key: str) -> float:
        return sum(float(result[key]) for result in results) / len(results)

    fair = min(rates) / max(rates)
    print(
        f"{processes} x {flight:3d} in flight {sum(rates):7.0f} units/s"
        f"   batch {mean('batch'):5.1f}   p50 {mean('p50_ms'):5.1f} ms"
        f"   p99 {mean('p99_ms'):5.1f} ms   cpu {mean('cpu_us'):4.0f} us/unit"
        f"   slowest/fastest {fair:.2f}   {folding.result()} checkpoints",
        flush=True,
    )


def main() -> None:
    """Print the table, or be one of its processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--flight", type=int, default=16)
    parser.add_argument("--folder", type=Path, default=ROOT, help="on the file system to measure")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        print(json.dumps(uvloop.run(work(given.work, given.seconds, given.flight))))
        return
    with tempfile.TemporaryDirectory(dir=given.folder, prefix=".bench-") as name:
        folder = Path(name)
        print(f"python {sys.version.split()[0]}, SQLite {sqlite3.sqlite_version}")
        print(f"{os.cpu_count()} cores, {folder.parent}")
        for per_commit in (1, 64):
            rate = bare(folder, per_commit, given.seconds / 2)
            print(f"the disk: {rate:7.0f} single-insert bookings/s in commits of {per_commit}")
        for processes, flight in ((1, 1), (1, 16), (1, 64), (4, 1), (4, 16)):
            run = folder / f"{processes}-{flight}"
            run.mkdir()
            uvloop.run(measure(run, processes, given.seconds, flight))


if __name__ == "__main__":
    main()
